//! Tests of multicast datagrams to members in other processes.

use rdma_mummy_sys::ibv_wc_status as Status;

use super::wire::Wire;
use super::*;
use crate::qp::Destination;
use crate::wire::packet::{MULTICAST_NUMBER, Packet, Part};

/// A sender that is a member of the group, and the carriers to other processes.
struct Party {
    sender: End,
    wires: Vec<Arc<Wire>>,
    group: Gid,
}

impl Party {
    /// Creates a party with a group of its own.
    fn new(last: u8) -> Self {
        let sender = End::new(Service::UnreliableDatagram);
        sender.ready(&Attributes { drain_notify: true, ..attributes(0) });
        let group = Gid::from_ipv4([239, 7, 0, last]);
        let party = Self { sender, wires: vec![Wire::new(), Wire::new(), Wire::new()], group };
        party.set_test_route();
        party.set_timeout(Duration::from_secs(600));
        QpRegistry::of_process().attach(group, &party.sender.pair).unwrap();
        for wr_id in 0..u64::from(SLOTS) {
            party.sender.receive_bytes(wr_id, 64, 64);
        }
        party
    }

    fn set_timeout(&self, timeout: Duration) {
        self.sender.pair.requester.lock().unwrap().flight.backpressure.timeout = timeout;
    }

    fn set_test_route(&self) {
        let carrier = |wire: &Arc<Wire>| -> Arc<dyn Carrier> { wire.clone() };
        QpRegistry::of_process().set_test_group(self.group, self.wires.iter().map(carrier).collect());
    }

    fn send(&self, wr_id: u64) {
        self.sender.post(wr_id, Operation::SendImmediate { immediate: wr_id as u32 }, |work| {
            work.destination = Some(Destination { path: path(self.group), number: MULTICAST_NUMBER, key: 0x1234 });
            work.pieces.push(self.sender.bytes.piece(0, 4));
        });
    }

    /// Returns the datagrams that a process has received since the last call, with their PSNs.
    fn received(&self, wire: usize) -> Vec<(u32, u32)> {
        let datagram = |(packet, _)| match packet {
            Packet::Part(Part { number: MULTICAST_NUMBER, request, .. }) => match request.operation {
                Operation::SendImmediate { immediate } => (immediate, request.psn & 0xf),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        let received = std::iter::from_fn(|| self.wires[wire].pop()).map(datagram).collect();
        self.wires[wire].call();
        received
    }

    /// Returns how many datagrams the sender itself has received.
    fn own(&self) -> usize {
        self.sender.received_statuses().len()
    }

    /// Asserts that only this test and the registry refer to the carriers.
    fn assert_released(&self) {
        assert!(self.wires.iter().all(|wire| Arc::strong_count(wire) == 2));
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        QpRegistry::of_process().set_test_group(self.group, Vec::new());
        let _ = QpRegistry::of_process().detach(self.group, &self.sender.pair);
    }
}

#[test]
fn full_process_is_waited_for_and_no_member_receives_twice() {
    let party = Party::new(1);
    party.wires[1].set_space(2);
    for wr_id in 0..4 {
        party.send(wr_id);
    }
    // The third datagram waits for the second process, and the fourth waits for the third.
    assert_eq!((party.sender.sent_statuses(), party.own()), (vec![(0, SUCCESS), (1, SUCCESS)], 3));
    assert_eq!(party.received(0), [(0, 0), (1, 1), (2, 2)]);
    assert_eq!((party.wires[1].len(), party.wires[2].len()), (2, 3));
    assert_eq!(party.received(1), [(0, 0), (1, 1)]);
    assert_eq!((party.sender.sent_statuses(), party.own()), (vec![(2, SUCCESS), (3, SUCCESS)], 1));
    assert_eq!((party.received(0), party.received(1)), (vec![(3, 3)], vec![(2, 2), (3, 3)]));
    assert_eq!(party.received(2), [(0, 0), (1, 1), (2, 2), (3, 3)]);
    party.assert_released();
}

#[test]
fn members_are_looked_up_once_per_datagram() {
    let mut party = Party::new(2);
    party.wires[0].set_space(0);
    party.send(0);
    party.wires.push(Wire::new());
    party.set_test_route();
    party.send(1);
    party.wires[0].set_space(9);
    assert_eq!(party.received(0), [(0, 0), (1, 1)]);
    assert_eq!(party.received(3), [(1, 1)]);
    assert_eq!(party.sender.sent_statuses(), [(0, SUCCESS), (1, SUCCESS)]);
}

#[test]
fn only_the_timed_out_process_misses_the_datagram() {
    let party = Party::new(3);
    party.wires[0].set_space(0);
    party.wires[2].set_space(1);
    party.set_timeout(Duration::from_millis(1));
    party.send(0);
    assert_eq!(poll(&party.sender.sends).wr_id, 0);
    party.set_timeout(Duration::from_secs(600));
    party.send(1);
    party.send(2);
    // The second datagram waits for the third process. The first process has timed out, and delays nothing until it has
    // space.
    assert_eq!((party.wires[0].len(), party.received(1)), (0, vec![(0, 0), (1, 1)]));
    assert_eq!(party.received(2), [(0, 0)]);
    assert_eq!(party.sender.sent_statuses(), [(1, SUCCESS)]);
    party.wires[2].set_space(9);
    assert_eq!(party.sender.sent_statuses(), [(2, SUCCESS)]);
    assert_eq!((party.received(1), party.received(2)), (vec![(2, 2)], vec![(1, 1), (2, 2)]));
    // The first wire has got space, so later datagrams wait for it again.
    party.wires[0].set_space(1);
    party.send(3);
    party.send(4);
    assert_eq!(party.sender.sent_statuses(), [(3, SUCCESS)]);
    assert_eq!(party.received(0), [(3, 3)]);
    assert_eq!((party.sender.sent_statuses(), party.received(0)), (vec![(4, SUCCESS)], vec![(4, 4)]));
    assert_eq!(party.own(), 5);
    party.assert_released();
}

#[test]
fn ended_process_is_not_waited_for() {
    let party = Party::new(4);
    party.wires[1].set_space(0);
    party.send(0);
    assert!(party.sender.sends.is_empty());
    party.wires[1].lose();
    assert_eq!((party.sender.sent_statuses(), party.received(0)), (vec![(0, SUCCESS)], vec![(0, 0)]));
    party.send(1);
    assert_eq!((party.sender.sent_statuses(), party.received(0)), (vec![(1, SUCCESS)], vec![(1, 1)]));
    party.assert_released();
}

#[test]
fn blocked_datagram_is_flushed_reset_and_closed() {
    for to in [Some(State::Error), Some(State::Reset), None] {
        let party = Party::new(5);
        party.wires[0].set_space(0);
        for wr_id in 0..u64::from(SLOTS) {
            party.send(wr_id);
        }
        assert_eq!(party.sender.pair.batch().push().map(drop), Err(Errno::NO_MEMORY));
        let statuses = match to {
            Some(to) => {
                party.sender.pair.change(State::ReadyToSend, to, party.sender.pair.attributes()).unwrap();
                party.sender.sent_statuses()
            }
            None => {
                party.sender.pair.close();
                Vec::new()
            }
        };
        let flushed: Vec<_> = (0..u64::from(SLOTS)).map(|wr_id| (wr_id, FLUSHED)).collect();
        assert_eq!(statuses, if to == Some(State::Error) { flushed } else { vec![] });
        party.assert_released();
        // The wake-up finds no request, so no datagram is sent later.
        party.wires[0].set_space(9);
        assert_eq!((party.received(0), party.received(1)), (vec![], vec![(0, 0)]));
        assert!(party.sender.sends.is_empty());
        if to == Some(State::Reset) {
            party.sender.ready(&attributes(0));
            party.sender.receive_bytes(7, 64, 64);
            party.send(3);
            assert_eq!((party.sender.sent_statuses(), party.own()), (vec![(3, SUCCESS)], 1));
            assert_eq!((party.received(0), party.received(1)), (vec![(3, 0)], vec![(3, 0)]));
        }
    }
}

#[test]
fn send_queue_drains_after_begun_datagrams_are_sent() {
    let party = Party::new(6);
    party.wires[0].set_space(0);
    party.send(0);
    party.send(1);
    let ours = party.sender.pair.attributes();
    party.sender.pair.change(State::ReadyToSend, State::SendQueueDrain, ours).unwrap();
    assert!(party.sender.pair.is_draining());
    party.wires[0].set_space(9);
    assert_eq!((party.sender.sent_statuses(), party.received(0)), (vec![(0, SUCCESS)], vec![(0, 0)]));
    assert_eq!(party.sender.log.events(), [PairEvent::SendQueueDrained]);
    party.sender.pair.change(State::SendQueueDrain, State::ReadyToSend, ours).unwrap();
    assert_eq!((party.sender.sent_statuses(), party.received(0)), (vec![(1, SUCCESS)], vec![(1, 1)]));
}

#[test]
fn deregistered_memory_fails_a_blocked_datagram() {
    let party = Party::new(7);
    party.wires[0].set_space(0);
    party.send(0);
    party.send(1);
    Memory::of_process().deregister(&party.sender.bytes.region).unwrap();
    party.wires[0].set_space(9);
    assert_eq!(party.sender.sent_statuses(), [(0, Status::IBV_WC_LOC_PROT_ERR), (1, FLUSHED)]);
    assert_eq!((party.received(0), party.received(1)), (vec![], vec![(0, 0)]));
    assert_eq!(party.sender.pair.state(), State::SendQueueError);
    party.assert_released();
}
