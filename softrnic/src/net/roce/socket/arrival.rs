//! Received packets.

use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::numbering::Numbering;
use crate::net::roce::icrc::{self, Flow};
use crate::sys::datagram::{Datagram, Received};
use crate::wire::address::Gid;

/// The length of the base transport header, which all packets have.
pub(super) const BTH: usize = 12;

/// A packet with the right ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival<'a> {
    pub(crate) source: Gid,
    /// An address of this host, or a multicast group.
    pub(crate) destination: Gid,
    pub(crate) source_port: u16,
    /// The traffic class, or the TOS of IPv4, with the bits for ECN.
    pub(crate) traffic_class: u8,
    /// The packet from the first byte of its BTH to the last one of its padding.
    pub(crate) bytes: &'a [u8],
}

impl Arrival<'_> {
    /// Whether a router has marked the packet because of congestion (RFC 3168).
    pub(crate) fn is_marked(&self) -> bool {
        self.traffic_class & 3 == 3
    }

    /// Returns the number of the destination QP.
    pub(crate) fn queue_pair(&self) -> u32 {
        // All arrivals have a BTH.
        self.bytes
            .get(4..8)
            .and_then(|bytes| bytes.first_chunk())
            .map_or(0, |&bytes| u32::from_be_bytes(bytes) & 0xff_ffff)
    }
}

/// What a thread needs to receive packets.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(super) received: Received,
    /// The space for a packet that another process of this host has received.
    pub(super) forwarded: Vec<u8>,
    numbering: Numbering,
}

/// The numbers of datagrams and packets that were dropped.
#[derive(Debug, Default)]
pub(crate) struct Dropped {
    /// Packets with a wrong ICRC.
    pub(crate) icrc_errors: AtomicU64,
    /// Packets that are too short or have an impossible length, and datagrams without addresses.
    pub(crate) malformed: AtomicU64,
    /// Datagrams that exceed the buffer.
    pub(crate) truncated: AtomicU64,
    /// Packets for other processes of this host that these could not take, or for QPs that no process owns.
    pub(crate) not_forwarded: AtomicU64,
}

/// What the control messages of a datagram contain.
#[derive(Debug, Default)]
struct Information {
    destination: Option<Gid>,
    traffic_class: u8,
    /// The length of all packets except the last one, if the datagram has several (UDP_GRO).
    length: Option<usize>,
}

impl Receiver {
    pub(crate) fn new() -> Self {
        Self { received: Received::new(), forwarded: Vec::new(), numbering: Numbering::new() }
    }

    /// Calls `arrived` with the intact packets of each received datagram. `port` is the port of this end.
    pub(super) fn deliver(
        &mut self,
        port: u16,
        dropped: &Dropped,
        mut arrived: impl for<'d> FnMut(&mut dyn Iterator<Item = Arrival<'d>>),
    ) {
        for datagram in self.received.iter() {
            if datagram.is_truncated {
                dropped.truncated.fetch_add(1, Ordering::Relaxed);
            } else if let Some(mut packets) = packets(&datagram, port, &mut self.numbering, dropped) {
                arrived(&mut packets);
            } else {
                dropped.malformed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Returns the intact packets of a datagram, or `None` if it has no addresses.
fn packets<'d>(
    datagram: &Datagram<'d>,
    port: u16,
    numbering: &'d mut Numbering,
    dropped: &'d Dropped,
) -> Option<impl Iterator<Item = Arrival<'d>>> {
    let Information { destination, traffic_class, length } = information(datagram);
    let (source, source_port) = datagram.name.address()?;
    let (source, destination) = (Gid::from(source), destination?);
    let flow = Flow { source, destination, source_port, destination_port: port };
    // A datagram without data is a packet without data.
    let length = length.unwrap_or(datagram.bytes.len()).max(1);
    let packets = datagram.bytes.chunks(length).chain(datagram.bytes.is_empty().then_some(datagram.bytes));
    Some(packets.filter_map(move |packet| {
        let counter = match packet.split_last_chunk::<{ icrc::LENGTH }>() {
            Some((bytes, sum)) if bytes.len() >= BTH && bytes.len() % 4 == 0 => {
                if numbering.check(&flow, bytes, *sum) {
                    return Some(Arrival { source, destination, source_port, traffic_class, bytes });
                }
                if dropped.icrc_errors.load(Ordering::Relaxed) == 0 {
                    rdma_mummy_sys::log!(
                        warn,
                        "dropped a RoCEv2 packet from {} with a wrong ICRC: something on the path changes \
                         packets, or the sender gives them no predictable Identification; use IPv6",
                        Ipv6Addr::from(source.0)
                    );
                }
                &dropped.icrc_errors
            }
            _ => &dropped.malformed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        None
    }))
}

fn information(datagram: &Datagram<'_>) -> Information {
    let mut information = Information::default();
    for (level, kind, data) in datagram.control.iter() {
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // The last field of `struct in_pktinfo` is the destination in the header.
                let address = data.last_chunk::<4>();
                information.destination = address.map(|&address| Gid::from_ipv4(address));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                information.destination = data.first_chunk().map(|&address| Gid(address));
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => information.traffic_class = data.first().copied().unwrap_or(0),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                let value = data.first_chunk().map_or(0, |&value| i32::from_ne_bytes(value));
                information.traffic_class = u8::try_from(value).unwrap_or(0);
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let value = data.first_chunk().map(|&value| i32::from_ne_bytes(value));
                information.length = value.and_then(|value| usize::try_from(value).ok());
            }
            _ => {}
        }
    }
    information
}
