//! What waits while the socket takes nothing.

use super::*;
use crate::net::roce::packet::SendEnd;
use crate::wire::address::Gid;
use crate::wire::operation::Service;

/// The PSN of the first packet.
const PSN: u32 = 100;

/// Returns the request of which those of a peer are copies. `source_number` is the number of its QP.
pub(in crate::net::roce) fn template(source_number: u32) -> Request {
    Request {
        service: Service::ReliableConnection,
        operation: Operation::Send,
        length: 0,
        is_solicited: false,
        psn: 0,
        packets: 1,
        source_number,
        source: Gid::ZERO,
        destination: Gid::ZERO,
        key: 0,
        traffic_class: 0,
        hop_limit: 0,
        flow_label: 0,
        service_level: 0,
        srq_number: 0,
    }
}

fn responses() -> Responses {
    let line = Line { mtu: 1024, service: Service::ReliableConnection, destination: 2 };
    Responses::new(line, PSN, 4, 1, template(2))
}

/// Handles an atomic of the peer. Returns the result of its reply if it is a new one.
fn atomic(responses: &mut Responses, psn: u32) -> Option<Result<(), Stuck>> {
    let line = Line { mtu: 1024, service: Service::ReliableConnection, destination: 1 };
    let packet = line.packet(Body::FetchAdd { address: 0, rkey: 0, add: 1 }, 0, psn);
    match responses.arrived(&packet, 0, Instant::now()) {
        Verdict::Part(_) => {
            let kind = ResponseKind::Reply(Reply::Done { original: 0 });
            let response = Response { number: 2, source_number: 1, psn, attempt: 0, kind };
            Some(responses.respond(&response, |_| Ok(())))
        }
        _ => None,
    }
}

/// Sends what waits, and returns the number of packets.
fn sent(responses: &mut Responses) -> usize {
    let mut count = 0;
    responses.send(&mut |_: &Packet, _: &[u8]| {
        count += 1;
        true
    });
    count
}

#[test]
fn repeated_requests_are_answered_only_while_few_answers_wait() {
    let mut responses = responses();
    assert_eq!(atomic(&mut responses, PSN), Some(Ok(())));
    for _ in 0..10 * MAX_WAITING {
        assert_eq!(atomic(&mut responses, PSN), None);
    }
    assert_eq!(sent(&mut responses), MAX_WAITING);
    atomic(&mut responses, PSN);
    assert_eq!(sent(&mut responses), 1);
}

#[test]
fn refusals_are_repeated_only_while_few_answers_wait() {
    let mut responses = responses();
    responses.refuse(PSN, Nak::RemoteAccess);
    let packet = Body::Send { place: Place::Only, end: SendEnd::Nothing };
    let packet = Packet { asks: true, ..responses.line.packet(packet, 0, PSN) };
    for _ in 0..10 * MAX_WAITING {
        responses.arrived(&packet, 0, Instant::now());
    }
    assert_eq!(sent(&mut responses), MAX_WAITING);
}

#[test]
fn replies_wait_in_the_qp_while_many_answers_wait() {
    let mut responses = responses();
    let mut psn = PSN;
    while atomic(&mut responses, psn) == Some(Ok(())) {
        psn += 1;
    }
    assert_eq!(psn - PSN, MAX_WAITING as u32);
    assert!(!responses.has_space());
    assert_eq!(sent(&mut responses), MAX_WAITING);
    assert!(responses.has_space());
    let kind = ResponseKind::Reply(Reply::Done { original: 0 });
    let response = Response { number: 2, source_number: 1, psn, attempt: 0, kind };
    assert_eq!(responses.respond(&response, |_| Ok(())), Ok(()));
    assert_eq!(sent(&mut responses), 1);
}

/// Another thread may send while the QP handles a packet, and the QP may refuse this packet.
#[test]
fn packet_is_acknowledged_only_after_the_qp_has_handled_it() {
    let first = Body::Send { place: Place::First, end: SendEnd::Nothing };
    for is_ready in [true, false] {
        let mut responses = responses();
        let packet = Packet { asks: true, ..responses.line.packet(first, 0, PSN) };
        assert!(matches!(responses.arrived(&packet, 1024, Instant::now()), Verdict::Part(_)));
        assert_eq!(sent(&mut responses), 0);
        if !is_ready {
            let kind = ResponseKind::Reply(Reply::NotReady { timer: 1 });
            let response = Response { number: 2, source_number: 1, psn: PSN, attempt: 0, kind };
            assert_eq!(responses.respond(&response, |_| Ok(())), Ok(()));
        }
        responses.handled();
        // The answer is an acknowledgement or an RNR NAK.
        assert_eq!(sent(&mut responses), 1);
        assert_eq!(responses.expected, PSN + u32::from(is_ready));
    }
}

const READ: Range = Range { address: 0x1000, rkey: 7, length: 1 << 20 };

/// Handles a packet that asks for the data of [`READ`] from this place on.
fn read_from(responses: &mut Responses, place: u32) -> Verdict {
    let skipped = place * 1024;
    let range = Range { address: READ.address + u64::from(skipped), length: READ.length - skipped, ..READ };
    responses.arrived(&responses.line.packet(Body::Read(range), 0, PSN + place), 0, Instant::now())
}

/// Gives data of a read. Returns whether the data is used.
fn give(responses: &mut Responses, place: u32, offset: u64) -> bool {
    let kind = ResponseKind::Data { offset, length: 16 << 10 };
    let response = Response { number: 2, source_number: 1, psn: PSN + place, attempt: 0, kind };
    let mut is_used = false;
    let read = |bytes: &mut Vec<u8>| {
        bytes.resize(16 << 10, 0);
        is_used = true;
        Ok(())
    };
    assert_eq!(responses.respond(&response, read), Ok(()));
    is_used
}

fn finish(responses: &mut Responses, psn: u32) {
    let kind = ResponseKind::Reply(Reply::Done { original: 0 });
    let response = Response { number: 2, source_number: 1, psn, attempt: 0, kind };
    assert_eq!(responses.respond(&response, |_| Ok(())), Ok(()));
}

/// The data may be gigabytes, and the peer ignores all that follows the loss.
#[test]
fn read_whose_data_is_lost_is_continued_from_the_loss_at_once() {
    let mut responses = responses();
    assert!(matches!(read_from(&mut responses, 0), Verdict::Part(_)));
    assert!(give(&mut responses, 0, 0));
    assert!(matches!(read_from(&mut responses, 16), Verdict::Nothing), "this data was not sent yet");
    assert!(give(&mut responses, 0, 16 << 10));
    assert!(matches!(read_from(&mut responses, 5), Verdict::Again(part) if part.request.psn == PSN + 5));
    assert!(!give(&mut responses, 0, 32 << 10));
    assert!(matches!(read_from(&mut responses, 5), Verdict::Nothing), "this data comes next");
    finish(&mut responses, PSN);
    assert_eq!(sent(&mut responses), 32);
    assert!(give(&mut responses, 5, 0));
    assert!(matches!(read_from(&mut responses, 7), Verdict::Again(_)));
    assert!(!give(&mut responses, 5, 16 << 10));
    finish(&mut responses, PSN + 5);
    assert!(give(&mut responses, 7, 0));
    let mut first = None;
    let mut emit = |packet: &Packet, _: &[u8]| {
        first.get_or_insert(packet.psn);
        true
    };
    responses.send(&mut emit);
    assert_eq!((first, responses.repeats.len()), (Some(PSN + 5), 1));
    // A peer without end does not take memory without end.
    let repeats = (8..1000).filter(|place| matches!(read_from(&mut responses, *place), Verdict::Again(_)));
    assert!(repeats.count() < 8);
}

#[test]
fn gap_after_a_read_is_reported_after_its_data() {
    let mut responses = responses();
    assert!(matches!(read_from(&mut responses, 0), Verdict::Part(_)));
    let send = Body::Send { place: Place::Only, end: SendEnd::Nothing };
    let send = responses.line.packet(send, 0, PSN + 1024 + 1);
    assert!(matches!(responses.arrived(&send, 0, Instant::now()), Verdict::Nothing));
    responses.handled();
    assert_eq!(sent(&mut responses), 0);
    finish(&mut responses, PSN);
    assert_eq!(sent(&mut responses), 1);
}

impl Responses {
    /// The state in a few words.
    pub(in crate::net::roce) fn summary(&self) -> String {
        format!(
            "expected {} pending {:?} repeats {:?} saved {:?} refused {:?} out {} due {}\n",
            self.expected,
            self.pending,
            self.repeats,
            self.saved,
            self.refused,
            self.out.len(),
            self.is_acknowledgement_due
        )
    }
}
