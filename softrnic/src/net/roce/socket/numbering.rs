//! The Identifications in the IPv4 headers of peers. The ICRC covers them, but a UDP socket does not report them.

use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;

use crate::net::roce::icrc::{self, Flow, icrc, identification_of};
use crate::wire::address::Gid;

/// The number of peers that are remembered.
const PEERS: usize = 256;
/// A sender that numbers the packets of a batch, such as softrnic, uses only smaller Identifications.
const SMALL: u16 = 64;
/// After this number of consecutive small Identifications, a peer may use no other ones. A peer that counts its packets
/// sends at most [`SMALL`] of them.
const PROVEN: u8 = 255;
/// A proven peer is forgotten after this number of consecutive packets with other Identifications. Another host may
/// have its address now.
const MAX_REFUSED: u8 = 8;

/// What a receiver has learned about the Identifications of its peers.
///
/// A packet whose ICRC fits to the expected Identification is intact. If the ICRC fits to another one, the packet is
/// accepted too, because a peer such as rdma_rxe starts to count anywhere; 1 of 65,536 damaged packets passes this check.
/// A peer that numbers from 0 is recognized, so that only 1 of 2²⁶ damaged packets passes.
#[derive(Debug)]
pub(super) struct Numbering(Box<[Peer; PEERS]>);

#[derive(Clone, Copy, Debug)]
struct Peer {
    source: Gid,
    last: u16,
    /// 1 if the last Identification was the successor of the one before.
    step: u16,
    /// The number of consecutive small Identifications.
    small: u8,
    /// The number of consecutive packets that were refused.
    refused: u8,
}

impl Peer {
    const fn new(source: Gid) -> Self {
        Self { source, last: 0, step: 0, small: 0, refused: 0 }
    }

    /// Handles an intact packet with this Identification. Returns whether the packet is accepted.
    fn accept(&mut self, identification: u16) -> bool {
        if identification < SMALL {
            self.small = self.small.saturating_add(1);
        } else if self.small < PROVEN || self.refused == MAX_REFUSED {
            self.small = 0;
        } else {
            self.refused += 1;
            return false;
        }
        self.refused = 0;
        self.step = u16::from(identification == self.last.wrapping_add(1));
        self.last = identification;
        true
    }
}

impl Numbering {
    pub(super) fn new() -> Self {
        Self(Box::new([Peer::new(Gid::ZERO); PEERS]))
    }

    /// Checks the ICRC of a packet. Returns whether it is right.
    pub(super) fn check(&mut self, flow: &Flow, bytes: &[u8], sum: [u8; icrc::LENGTH]) -> bool {
        if flow.source.ipv4().is_none() {
            return icrc(flow, 0, bytes) == sum;
        }
        let peer = self.peer(flow.source);
        let expected = peer.last.wrapping_add(peer.step);
        if icrc(flow, expected, bytes) == sum {
            return peer.accept(expected);
        }
        identification_of(flow, bytes, sum).is_some_and(|identification| peer.accept(identification))
    }

    /// Returns the entry of a peer, which may replace that of another one.
    fn peer(&mut self, source: Gid) -> &mut Peer {
        let index = FxBuildHasher.hash_one(source) % PEERS as u64;
        // The conversion is lossless, because the index is less than the number of peers.
        let peer = &mut self.0[index as usize];
        if peer.source != source {
            *peer = Peer::new(source);
        }
        peer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::roce::socket::tests::gid;

    const BYTES: [u8; 16] = [0x11, 0x40, 0xff, 0xff, 0, 0, 0, 0x12, 0, 0, 0, 7, 0x1f, 0, 0, 3];

    fn flow(source: &str) -> Flow {
        Flow { source: gid(source), destination: gid("10.0.0.1"), source_port: 0xc000, destination_port: 4791 }
    }

    /// Whether a packet of 10.0.0.2 with this Identification is accepted.
    fn accepts(numbering: &mut Numbering, identification: u16) -> bool {
        let flow = flow("10.0.0.2");
        numbering.check(&flow, &BYTES, icrc(&flow, identification, &BYTES))
    }

    #[test]
    fn peer_that_counts_is_followed() {
        let mut numbering = Numbering::new();
        for identification in (5000..5100).chain(65_500..=65_535).chain(0..200).chain(7000..7010) {
            assert!(accepts(&mut numbering, identification), "{identification}");
            let peer = numbering.peer(gid("10.0.0.2"));
            assert_eq!(peer.last, identification);
        }
    }

    #[test]
    fn peer_that_numbers_from_zero_is_held_to_it() {
        let mut numbering = Numbering::new();
        for identification in (0..64).cycle().take(255) {
            assert!(accepts(&mut numbering, identification));
        }
        assert!(!accepts(&mut numbering, 64));
        assert!(accepts(&mut numbering, 0));
        // Another host with the address is accepted after a while.
        let refused = (9000..9100).take_while(|&identification| !accepts(&mut numbering, identification));
        assert_eq!(refused.count(), usize::from(MAX_REFUSED));
        assert!(accepts(&mut numbering, 20_000));
    }

    #[test]
    fn damaged_packets_are_refused() {
        let mut numbering = Numbering::new();
        for source in ["10.0.0.2", "2001:db8::2"] {
            let mut flow = flow(source);
            if flow.source.ipv4().is_none() {
                flow.destination = gid("2001:db8::1");
            }
            let sum = icrc(&flow, 0, &BYTES);
            assert!(numbering.check(&flow, &BYTES, sum));
            for bit in (0..BYTES.len() * 8).filter(|bit| bit / 8 != 4) {
                let mut bytes = BYTES;
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(!numbering.check(&flow, &bytes, sum), "{source} {bit}");
            }
        }
    }

    #[test]
    fn identification_of_ipv6_is_not_searched() {
        let flow = Flow { source: gid("2001:db8::2"), destination: gid("2001:db8::1"), ..flow("10.0.0.2") };
        let mut sum = icrc(&flow, 0, &BYTES);
        sum[3] ^= 1;
        assert!(!Numbering::new().check(&flow, &BYTES, sum));
    }
}
