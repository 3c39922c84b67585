//! The counters of the device and of its connections.

use std::time::Instant;

use rdma_mummy_sys::*;
use softrnic::control::{Command, Device, Error, QueuePair};

use crate::common::LONG;
use crate::packet::*;
use crate::peer::Peer;

#[test]
fn counters_are_those_of_the_connection() {
    let peer = Peer::new();
    let pair = QueuePair::numbered(peer.side.number()).unwrap();
    let counted = || {
        let named = pair.counters().unwrap().named();
        named.into_iter().filter(|(_, value)| *value > 0).collect::<Vec<_>>()
    };
    assert_eq!(counted(), []);

    let write = |psn| packet(WRITE_ONLY, psn).reth(0, 0, 0).asks();
    peer.exchange(&[write(101)], &[acknowledgement(100, SEQUENCE, 0)]);
    for _ in 0..2 {
        peer.exchange(&[write(100)], &[acknowledgement(100, ACK, 1)]);
    }
    let send = packet(SEND_ONLY, 101).payload([0; 4]).asks();
    peer.exchange(&[send], &[acknowledgement(101, NOT_READY | crate::peer::MIN_RNR_TIMER, 1)]);
    peer.send(&packet(CONGESTION, 0).payload([0; 16]));
    peer.exchange(&[write(100)], &[acknowledgement(100, ACK, 1)]);
    let expected = [("out_of_sequence", 1), ("duplicate_requests", 2), ("rnr_nak_sent", 1), ("cnp_handled", 1)];
    assert_eq!(counted(), expected);

    peer.side.send(ibv_wr_opcode::IBV_WR_SEND, 1, &mut [peer.side.piece(0, 4)], |_| {});
    peer.request(200);
    peer.send(&acknowledgement(200, SEQUENCE, 1));
    peer.request(200);
    peer.send(&acknowledgement(200, ACK, 2));
    peer.side.done(1);
    let found = pair.counters().unwrap();
    assert_eq!(found.sequence_naks, 1);
    assert_eq!(found.retransmits, 1 + found.ack_timeouts);

    let (device, before) = (Device::named("softroce0").unwrap(), found);
    let text: Command = format!("qp {} counters", peer.side.number()).parse().unwrap();
    assert!(text.run().unwrap().contains(" out_of_sequence=1 "));
    peer.close();
    // Those of a connection that has ended stay in those of the device. Other tests may add to them.
    let after = device.counters().unwrap();
    let is_in = |(before, after): ((_, u64), (_, u64))| before.1 <= after.1;
    assert!(before.named().into_iter().zip(after.named()).all(is_in), "{before}; {after}");
    assert!(matches!(pair.counters(), Err(Error::NoCounters { .. })));
}

/// The process that receives a packet counts it. As long as a process of another test has the port too, this may be that
/// process.
#[test]
fn packets_of_no_connection_are_those_of_the_device() {
    let peer = Peer::new();
    let counters = || Device::named("softroce0").unwrap().counters().unwrap();
    let (before, start) = (counters(), Instant::now());
    loop {
        peer.send_elsewhere(&packet(SEND_ONLY, 100));
        let bytes = packet(SEND_ONLY, 100).bytes(peer.side.number());
        peer.send_datagram(&[&bytes[..], &[0; 4]].concat());
        peer.exchange(&[packet(WRITE_ONLY, 100).reth(0, 0, 0).asks()], &[acknowledgement(100, ACK, 1)]);
        let after = counters();
        if after.icrc_errors > before.icrc_errors && after.discarded > before.discarded {
            break;
        }
        assert!(start.elapsed() < LONG, "{before}; {after}");
    }
    peer.close();
}
