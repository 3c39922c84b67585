//! Packets to one destination, which the kernel takes in one call (UDP_SEGMENT).

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::net::roce::icrc::{self, Flow, icrc};
use crate::net::roce::packet::Packet;
use crate::sys::addresses;
use crate::sys::datagram::{Control, Name};
use crate::wire::address::Gid;

/// The maximum number of packets of a batch. Kernels before Linux 6.9 accept no more.
const MAX_PACKETS: usize = 64;
/// The maximum number of bytes of a batch: the kernel takes it as one IPv4 datagram.
const MAX_BYTES: usize = 65_507;
/// The largest packet: the largest path MTU, and more than the longest headers. Larger packets make the buffer grow.
const PACKET_SPACE: usize = 4096 + 256;
/// The bits of the traffic class that routers use to mark packets (RFC 3168).
const ECN: u8 = 3;
/// The value of these bits by which the sender announces that it responds to marks, ECT(0).
const RESPONDS: u8 = 2;
/// The hop limit of a route without one.
const HOP_LIMIT: u8 = 64;

/// The way of packets to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// An address of this host. The peer compares it with the address that it expects.
    pub(crate) source: Gid,
    pub(crate) destination: Gid,
    /// The bits for ECN are not sent, except for those of [`with_ecn`](Self::with_ecn).
    pub(crate) traffic_class: u8,
    /// 0 = default.
    pub(crate) hop_limit: u8,
    pub(crate) flow_label: u32,
}

impl Route {
    /// Announces that this end responds to marks of routers.
    pub(crate) fn with_ecn(self) -> Self {
        Self { traffic_class: self.traffic_class & !ECN | RESPONDS, ..self }
    }
}

/// The batch has no space for the packet. The caller sends it, and adds the packet to an empty batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IsFull;

/// Packets to one destination. All packets have the same length, except that the last one may be shorter.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(super) flow: Flow,
    pub(super) name: Name,
    pub(super) control: Control,
    bytes: Vec<u8>,
    /// The length of all packets except the last one.
    length: usize,
    count: usize,
    /// The end of the last packet that was sent alone.
    sent: usize,
    /// Whether each packet is sent alone, with the Identification 0.
    is_split: bool,
}

impl Batch {
    /// Returns an empty batch. `port` is the port of both ends.
    pub(super) fn new(port: u16, route: &Route) -> Self {
        let Header { flow, name, control } = Header::new(port, route);
        let bytes = Vec::with_capacity(MAX_BYTES + PACKET_SPACE);
        Self { flow, name, control, bytes, length: 0, count: 0, sent: 0, is_split: false }
    }

    /// Returns an empty batch, to which nothing may be added before it [restarts](Self::restart).
    pub(crate) fn empty() -> Self {
        Self::new(
            0,
            &Route { source: Gid::ZERO, destination: Gid::ZERO, traffic_class: 0, hop_limit: 0, flow_label: 0 },
        )
    }

    /// Removes all packets, and changes the destination.
    pub(crate) fn restart(&mut self, header: &Header) {
        self.clear();
        Header { flow: self.flow, name: self.name, control: self.control } = *header;
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        (self.length, self.count, self.sent, self.is_split) = (0, 0, 0, false);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of packets.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Adds a packet. The kernel gives packet `n` of a batch the Identification `n`, and the ICRC covers it.
    ///
    /// # Errors
    ///
    /// Returns an error, and leaves the batch unchanged, if the packet is longer than the ones before, if one of these
    /// was shorter, or if the batch has reached its maximum size. An empty batch accepts each packet that UDP can carry.
    pub(crate) fn add(&mut self, packet: &Packet, payload: &[u8]) -> Result<(), IsFull> {
        let start = self.bytes.len();
        if self.count == MAX_PACKETS || start < self.count * self.length || self.sent > 0 || self.is_split {
            return Err(IsFull);
        }
        packet.write(payload, &mut self.bytes);
        let length = self.bytes.len() - start + icrc::LENGTH;
        if start + length > MAX_BYTES || self.count > 0 && length > self.length {
            self.bytes.truncate(start);
            return Err(IsFull);
        }
        // The conversion is lossless: see `MAX_PACKETS`.
        let sum = icrc(&self.flow, self.count as u16, &self.bytes[start..]);
        self.bytes.extend(sum);
        if self.count == 0 {
            self.length = length;
        }
        self.count += 1;
        Ok(())
    }

    /// Returns all packets with the length of each, unless they must be sent alone.
    pub(super) fn joined(&self) -> Option<(&[u8], u16)> {
        let length = u16::try_from(self.length).ok()?;
        (self.count > 1 && !self.is_split).then_some((&self.bytes, length))
    }

    /// Makes each packet one that is sent alone.
    pub(super) fn split(&mut self) {
        if self.count > 1 && !self.is_split {
            self.is_split = true;
            for packet in self.bytes.chunks_mut(self.length) {
                if let Some((bytes, sum)) = packet.split_last_chunk_mut::<{ icrc::LENGTH }>() {
                    *sum = icrc(&self.flow, 0, bytes);
                }
            }
        }
    }

    /// Returns the first packet that is not sent yet.
    pub(super) fn next(&self) -> Option<&[u8]> {
        self.bytes[self.sent..].chunks(self.length.max(1)).next()
    }

    /// Records that the packet of [`Self::next`] was sent.
    pub(super) fn was_sent(&mut self) {
        self.sent = self.bytes.len().min(self.sent + self.length);
    }
}

/// The address and the control messages of the datagrams of a route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    flow: Flow,
    name: Name,
    control: Control,
}

impl Header {
    /// `port` is the port of both ends.
    pub(in crate::net::roce) fn new(port: u16, route: &Route) -> Self {
        let flow =
            Flow { source: route.source, destination: route.destination, source_port: port, destination_port: port };
        let (name, control) = header(route, port);
        Self { flow, name, control }
    }
}

/// Returns the address and the control messages of datagrams.
fn header(route: &Route, port: u16) -> (Name, Control) {
    let has_ecn = route.traffic_class & ECN == RESPONDS;
    let traffic_class = if has_ecn { route.traffic_class } else { route.traffic_class & !ECN };
    let traffic_class = i32::from(traffic_class).to_ne_bytes();
    let hop_limit = i32::from(if route.hop_limit == 0 { HOP_LIMIT } else { route.hop_limit }).to_ne_bytes();
    let mut control = Control::EMPTY;
    let interface = outgoing_interface(route);
    let name = match (route.source.ipv4(), route.destination.ipv4()) {
        (Some(source), Some(destination)) => {
            // `struct in_pktinfo`
            let mut information = [0; 12];
            information[..4].copy_from_slice(&interface.to_ne_bytes());
            information[4..8].copy_from_slice(&source);
            control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &information);
            control.push(libc::IPPROTO_IP, libc::IP_TOS, &traffic_class);
            control.push(libc::IPPROTO_IP, libc::IP_TTL, &hop_limit);
            Name::ipv4(Ipv4Addr::from(destination), port)
        }
        _ => {
            // `struct in6_pktinfo`
            let mut information = [0; 20];
            information[..16].copy_from_slice(&route.source.0);
            information[16..].copy_from_slice(&interface.to_ne_bytes());
            control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &information);
            control.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &traffic_class);
            control.push(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &hop_limit);
            Name::ipv6(Ipv6Addr::from(route.destination.0), port, route.flow_label, interface)
        }
    };
    (name, control)
}

/// Returns the index of the interface from which packets must leave, or 0 if the kernel chooses it by the destination.
fn outgoing_interface(route: &Route) -> u32 {
    let is_link_local = Ipv6Addr::from(route.destination.0).is_unicast_link_local();
    if is_link_local || route.destination.is_multicast() { interface(route.source).unwrap_or(0) } else { 0 }
}

/// Returns the index of the interface with an address.
pub(in crate::net::roce) fn interface(address: Gid) -> Option<u32> {
    let ip = Ipv6Addr::from(address.0);
    // All addresses in 127.0.0.0/8 belong to the loopback interface, but the kernel lists only the first.
    let ip = if address.ipv4().is_some_and(|[first, ..]| first == 127) { addresses::LOOPBACK } else { ip };
    addresses::all().into_iter().find(|address| address.ip == ip).map(|address| address.interface_index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::roce::icrc::identification_of;
    use crate::net::roce::socket::tests::{gid, packet, route};

    /// Returns the Identification of each packet.
    fn identifications(batch: &Batch) -> Vec<Option<u16>> {
        let identification = |packet: &[u8]| {
            let (bytes, sum) = packet.split_last_chunk().unwrap();
            identification_of(&batch.flow, bytes, *sum)
        };
        batch.bytes.chunks(batch.length).map(identification).collect()
    }

    #[test]
    fn packets_are_numbered_and_those_of_a_split_batch_are_not() {
        let mut batch = Batch::new(4791, &route("127.0.0.1", "127.0.0.2"));
        for psn in 0..3 {
            batch.add(&packet(psn), &[7; 99]).unwrap();
        }
        assert_eq!(identifications(&batch), [Some(0), Some(1), Some(2)]);
        assert_eq!(batch.joined().unwrap().1, 12 + 100 + 4);
        batch.split();
        assert_eq!(identifications(&batch), [Some(0); 3]);
        assert_eq!(batch.joined(), None);
        assert_eq!(batch.add(&packet(3), &[]), Err(IsFull));
        batch.clear();
        assert_eq!(batch.add(&packet(3), &[]), Ok(()));
    }

    #[test]
    fn shorter_packet_is_the_last() {
        let mut batch = Batch::new(4791, &route("::1", "::1"));
        batch.add(&packet(0), &[1; 64]).unwrap();
        assert_eq!(batch.add(&packet(1), &[1; 65]), Err(IsFull));
        batch.add(&packet(1), &[1; 64]).unwrap();
        batch.add(&packet(2), &[1; 60]).unwrap();
        for length in [56, 60, 64] {
            assert_eq!(batch.add(&packet(3), &vec![1; length]), Err(IsFull));
        }
        assert_eq!((batch.count(), batch.bytes.len()), (3, 2 * 80 + 76));
    }

    #[test]
    fn limits_of_packets_and_bytes_hold() {
        let mut batch = Batch::new(4791, &route("::1", "::1"));
        let space = batch.bytes.capacity();
        let mut fill = |length: usize| {
            batch.clear();
            while batch.add(&packet(0), &vec![0; length]).is_ok() {}
            (batch.count(), batch.bytes.len())
        };
        assert_eq!(fill(0), (64, 64 * 16));
        assert_eq!(fill(1024), (62, 62 * 1040));
        assert_eq!(fill(4096), (15, 15 * 4112));
        assert_eq!(fill(65_536), (0, 0));
        fill(4096);
        assert!(batch.bytes.capacity() >= space);
    }

    #[test]
    fn each_packet_of_a_split_batch_is_sent_once() {
        let mut batch = Batch::new(4791, &route("::1", "::1"));
        for length in [8, 8, 4] {
            batch.add(&packet(0), &vec![0; length]).unwrap();
        }
        batch.split();
        let mut lengths = Vec::new();
        while let Some(packet) = batch.next() {
            lengths.push(packet.len());
            batch.was_sent();
        }
        assert_eq!(lengths, [24, 24, 20]);
    }

    #[test]
    fn control_messages_hold_the_route() {
        let marked = Route { traffic_class: 0xb7, hop_limit: 3, ..route("::1", "2001:db8::1") };
        let batch = Batch::new(4791, &marked);
        let numbers: Vec<_> = batch.control.iter().map(|(_, kind, data)| (kind, data[0])).collect();
        assert_eq!(numbers, [(libc::IPV6_PKTINFO, 0), (libc::IPV6_TCLASS, 0xb4), (libc::IPV6_HOPLIMIT, 3)]);
        let batch = Batch::new(4791, &route("127.0.0.1", "127.0.0.2"));
        let numbers: Vec<_> = batch.control.iter().map(|(_, kind, data)| (kind, data[0])).collect();
        assert_eq!(numbers, [(libc::IP_PKTINFO, 0), (libc::IP_TOS, 0), (libc::IP_TTL, 64)]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn group_is_reached_through_the_interface_of_the_source() {
        let interface = |destination: &str| outgoing_interface(&route("127.0.0.2", destination));
        assert_eq!((interface("239.1.2.3"), interface("127.0.0.3")), (1, 0));
        assert_eq!(super::interface(gid("2001:db8::5:5")), None);
    }
}
