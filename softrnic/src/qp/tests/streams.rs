//! Tests of iWARP QPs. Each of them has its own connection.

use super::wire::Wire;
use super::*;
use crate::qp::registry::ToQueuePairs;
use crate::wire::bytes::Fault;
use crate::wire::message::Refusal;
use crate::wire::packet::{ResponseKind, STREAM_PEER};
use crate::wire::transport::{Dedicated, Deliver};

/// Returns a part from the peer that contains a complete message.
fn part(end: &End, psn: u32, operation: Operation, length: u32) -> Part {
    let request = Request {
        service: Service::Iwarp,
        operation,
        length: length.into(),
        is_solicited: false,
        psn,
        packets: 1,
        source_number: STREAM_PEER,
        source: HERE,
        destination: HERE,
        key: 0,
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        service_level: 0,
        srq_number: 0,
    };
    let length = if operation.has_data() { length } else { 0 };
    Part { number: end.pair.number(), request, offset: 0, length, attempt: 0 }
}

fn connected_by(connection: Arc<dyn Dedicated>) -> End {
    let end = End::new(Service::Iwarp);
    end.pair.change(State::Reset, State::Init, Attributes { access: ALL, ..Attributes::new() }).unwrap();
    end.pair.connect(connection, path(HERE), (1, 1)).unwrap();
    end
}

#[test]
fn writes_beside_a_waiting_read_queue_no_replies() {
    let wire = Wire::new();
    let end = connected_by(wire.clone());
    let back: Arc<dyn Carrier> = wire.clone();
    let (address, rkey) = end.at(0);
    wire.set_space(0);
    end.pair.part_arrived(&part(&end, 0, Operation::Read { address, rkey }, 64), &[], &back);
    let mut bytes = [7_u8; 8];
    // SAFETY: the bytes live until the end of this function, and nothing else uses them.
    let payload = [unsafe { Segment::of_raw(bytes.as_mut_ptr(), bytes.len()) }];
    for psn in 1..100 {
        end.pair.part_arrived(&part(&end, psn, Operation::Write { address, rkey }, 8), &payload, &back);
    }
    assert_eq!(end.bytes.get(0, 8), [7; 8]);
    wire.set_space(usize::MAX);
    let kinds = std::iter::from_fn(|| wire.pop()).map(|(packet, _)| match packet {
        Packet::Response(response) => (response.psn, matches!(response.kind, ResponseKind::Data { .. })),
        Packet::Part(part) => panic!("{part:?}"),
    });
    assert_eq!(kinds.collect::<Vec<_>>(), [(0, true), (0, false)], "the data and the end of the read");
}

#[test]
fn refused_read_comes_after_the_data_of_an_earlier_one() {
    let wire = Wire::new();
    let end = End::new(Service::Iwarp);
    end.pair.change(State::Reset, State::Init, Attributes { access: ALL, ..Attributes::new() }).unwrap();
    end.pair.connect(wire.clone(), path(HERE), (2, 2)).unwrap();
    let back: Arc<dyn Carrier> = wire.clone();
    let (address, rkey) = end.at(0);
    wire.set_space(0);
    end.pair.part_arrived(&part(&end, 0, Operation::Read { address, rkey }, 64), &[], &back);
    end.pair.part_arrived(&part(&end, 1, Operation::Read { address, rkey: !rkey }, 64), &[], &back);
    assert_eq!(end.pair.state(), State::Error);
    wire.set_space(usize::MAX);
    let kinds = std::iter::from_fn(|| wire.pop()).map(|(packet, _)| match packet {
        Packet::Response(Response { psn, kind: ResponseKind::Data { .. }, .. }) => (psn, "data"),
        Packet::Response(Response { psn, kind: ResponseKind::Reply(Reply::Done { .. }), .. }) => (psn, "done"),
        Packet::Response(Response { psn, kind: ResponseKind::Reply(Reply::Refused(_)), .. }) => (psn, "refused"),
        other => panic!("{other:?}"),
    });
    assert_eq!(kinds.collect::<Vec<_>>(), [(0, "data"), (0, "done"), (1, "refused")]);
}

/// A carrier whose peer sends while the carrier ends.
#[derive(Debug, Default)]
struct Ending {
    number: AtomicU32,
    was_registered: AtomicBool,
    replies: Mutex<Vec<Packet>>,
}

impl Carrier for Ending {
    fn put(&self, packet: &Packet, _payload: Payload<'_>) -> Result<(), Stuck> {
        self.replies.lock().unwrap().push(*packet);
        Ok(())
    }

    fn wake(&self, _waiting: Weak<dyn Wake>) {}

    fn taken(&self) -> u64 {
        0
    }
}

impl Dedicated for Ending {
    fn settle(&self) {}

    fn end(&self) {
        let number = self.number.load(Ordering::Relaxed);
        self.was_registered.store(QpRegistry::of_process().find(number).is_some(), Ordering::Relaxed);
    }
}

#[test]
fn closed_pair_ends_its_stream_before_messages_miss_it() {
    let carrier = Arc::new(Ending::default());
    let end = connected_by(carrier.clone());
    carrier.number.store(end.pair.number(), Ordering::Relaxed);
    end.receive_bytes(1, 0, 8);
    end.pair.close();
    assert!(carrier.was_registered.load(Ordering::Relaxed));
    let back: Arc<dyn Carrier> = carrier.clone();
    ToQueuePairs.ended(end.pair.number(), &back, None);
    assert_eq!((end.received_statuses(), end.log.events()), (vec![], vec![]), "nothing completes after the close");
    assert!(carrier.replies.lock().unwrap().is_empty());
}

#[test]
fn missing_right_and_failed_invalidation_have_faults_of_their_own() {
    for (access, is_invalidation, expected) in [(0, false, Fault::Rights), (ALL, true, Fault::Invalidation)] {
        let wire = Wire::new();
        let end = connected_by(wire.clone());
        let attributes = Attributes { access, ..end.pair.attributes() };
        end.pair.change(State::ReadyToSend, State::ReadyToSend, attributes).unwrap();
        end.receive_bytes(1, 0, 8);
        let back: Arc<dyn Carrier> = wire.clone();
        let (address, rkey) = end.at(0);
        // The key of a region cannot be invalidated.
        let operation =
            if is_invalidation { Operation::SendInvalidate { rkey } } else { Operation::Write { address, rkey } };
        end.pair.part_arrived(&part(&end, 0, operation, 0), &[], &back);
        let Some((Packet::Response(response), _)) = wire.pop() else { panic!("no response") };
        assert_eq!(response.kind, ResponseKind::Reply(Reply::Refused(Refusal::AccessError(expected))));
    }
}
