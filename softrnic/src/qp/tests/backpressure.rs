//! Tests of datagrams to peers in other processes whose carriers are full.

use super::wire::{FLAG, Wire};
use super::*;
use crate::qp::Destination;
use crate::wire::packet::Packet;

/// A sender and the carriers to two peers. Of the peers, only their numbers are used.
struct Party {
    sender: End,
    peers: [(End, Arc<Wire>); 2],
}

impl Party {
    fn new() -> Self {
        let sender = End::new(Service::UnreliableDatagram);
        sender.ready(&attributes(0));
        let peers = [0, 1].map(|_| (End::new(Service::UnreliableDatagram), Wire::new()));
        for (end, wire) in &peers {
            QpRegistry::of_process().set_test_route(end.pair.number() ^ FLAG, Some(wire.clone()));
        }
        Self { sender, peers }
    }

    fn set_timeout(&self, timeout: Duration) {
        self.sender.pair.requester.lock().unwrap().flight.backpressure.timeout = timeout;
    }

    fn send(&self, wr_id: u64, peer: usize) {
        self.sender.post(wr_id, Operation::SendImmediate { immediate: wr_id as u32 }, |work| {
            let number = self.peers[peer].0.pair.number() ^ FLAG;
            work.destination = Some(Destination { path: path(HERE), number, key: 0x1234 });
        });
    }

    /// Returns the datagrams that a peer has received since the last call.
    fn received(&self, peer: usize) -> Vec<u32> {
        let wire = &self.peers[peer].1;
        let datagram = |(packet, _)| match packet {
            Packet::Part(Part {
                request: Request { operation: Operation::SendImmediate { immediate }, .. }, ..
            }) => immediate,
            other => panic!("{other:?}"),
        };
        let received = std::iter::from_fn(|| wire.pop()).map(datagram).collect();
        wire.call();
        received
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        for (end, _) in &self.peers {
            QpRegistry::of_process().set_test_route(end.pair.number() ^ FLAG, None);
        }
    }
}

#[test]
fn timed_out_peer_delays_nothing_until_it_has_space() {
    let party = Party::new();
    party.peers[0].1.set_space(0);
    party.peers[1].1.set_space(1);
    party.set_timeout(Duration::from_millis(1));
    party.send(0, 0);
    assert_eq!(poll(&party.sender.sends).wr_id, 0);
    party.set_timeout(Duration::from_secs(600));
    for (wr_id, peer) in [(1, 0), (2, 1), (3, 1), (4, 0)] {
        party.send(wr_id, peer);
    }
    // Messages to the other peer still wait.
    assert_eq!(party.sender.sent_statuses(), [(1, SUCCESS), (2, SUCCESS)]);
    assert_eq!(party.received(1), [2]);
    assert_eq!(party.sender.sent_statuses(), [(3, SUCCESS), (4, SUCCESS)]);
    party.peers[0].1.set_space(1);
    for (wr_id, peer) in [(5, 0), (6, 0)] {
        party.send(wr_id, peer);
    }
    assert_eq!((party.sender.sent_statuses(), party.received(0)), (vec![(5, SUCCESS)], vec![5]));
    assert_eq!((party.sender.sent_statuses(), party.received(0)), (vec![(6, SUCCESS)], vec![6]));
    assert_eq!(party.received(1), [3]);
}

#[test]
fn later_blocked_request_times_out_too() {
    let party = Party::new();
    party.set_timeout(Duration::from_millis(50));
    let wire = &party.peers[0].1;
    wire.set_space(0);
    party.send(0, 0);
    // The second request inherits the alarm of the first.
    wire.set_space(1);
    party.send(1, 0);
    party.send(2, 0);
    for wr_id in 0..3 {
        assert_eq!(poll(&party.sender.sends).wr_id, wr_id);
    }
}
