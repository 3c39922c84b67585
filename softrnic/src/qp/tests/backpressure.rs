//! Datagrams to peers in other processes that have no room.

use super::wire::{FLAG, Wire};
use super::*;
use crate::qp::Destination;
use crate::wire::packet::Packet;

/// A sender, and the ways to peers, of which there is only the number.
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
            QpRegistry::of_process().teach(end.pair.number() ^ FLAG, Some(wire.clone()));
        }
        Self { sender, peers }
    }

    /// How long a process is waited for.
    fn wait_for(&self, patience: Duration) {
        self.sender.pair.requester.lock().unwrap().flight.room.patience = patience;
    }

    fn send(&self, wr_id: u64, peer: usize) {
        self.sender.post(wr_id, Operation::SendImmediate { immediate: wr_id as u32 }, |work| {
            let number = self.peers[peer].0.pair.number() ^ FLAG;
            work.destination = Some(Destination { path: path(HERE), number, key: 0x1234 });
        });
    }

    /// What has come to a peer since the last look.
    fn came(&self, peer: usize) -> Vec<u32> {
        let wire = &self.peers[peer].1;
        let datagram = |(packet, _)| match packet {
            Packet::Part(Part {
                request: Request { operation: Operation::SendImmediate { immediate }, .. }, ..
            }) => immediate,
            other => panic!("{other:?}"),
        };
        let came = std::iter::from_fn(|| wire.pop()).map(datagram).collect();
        wire.call();
        came
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        for (end, _) in &self.peers {
            QpRegistry::of_process().teach(end.pair.number() ^ FLAG, None);
        }
    }
}

#[test]
fn a_peer_that_was_given_up_costs_no_time_until_it_has_room() {
    let party = Party::new();
    party.peers[0].1.set_room(0);
    party.peers[1].1.set_room(1);
    party.wait_for(Duration::from_millis(1));
    party.send(0, 0);
    assert_eq!(poll(&party.sender.sends).wr_id, 0);
    party.wait_for(Duration::from_secs(600));
    for (wr_id, peer) in [(1, 0), (2, 1), (3, 1), (4, 0)] {
        party.send(wr_id, peer);
    }
    // The other one is waited for.
    assert_eq!(party.sender.sent_statuses(), [(1, SUCCESS), (2, SUCCESS)]);
    assert_eq!(party.came(1), [2]);
    assert_eq!(party.sender.sent_statuses(), [(3, SUCCESS), (4, SUCCESS)]);
    party.peers[0].1.set_room(1);
    for (wr_id, peer) in [(5, 0), (6, 0)] {
        party.send(wr_id, peer);
    }
    assert_eq!((party.sender.sent_statuses(), party.came(0)), (vec![(5, SUCCESS)], vec![5]));
    assert_eq!((party.sender.sent_statuses(), party.came(0)), (vec![(6, SUCCESS)], vec![6]));
    assert_eq!(party.came(1), [3]);
}

#[test]
fn what_waits_behind_another_that_waited_is_given_up_in_its_turn() {
    let party = Party::new();
    party.wait_for(Duration::from_millis(50));
    let wire = &party.peers[0].1;
    wire.set_room(0);
    party.send(0, 0);
    // The alarm of the first is the second's.
    wire.set_room(1);
    party.send(1, 0);
    party.send(2, 0);
    for wr_id in 0..3 {
        assert_eq!(poll(&party.sender.sends).wr_id, wr_id);
    }
}
