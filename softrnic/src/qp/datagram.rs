//! Datagrams: how they are delivered to a group, and the header in front of their data.

use crate::qp::exchange::Exchange;
use crate::qp::registry::QpRegistry;
use crate::wire::message::{Reply, Request};
use crate::wire::operation::Operation;
use crate::wire::packet::MULTICAST_NUMBER;

/// The length of the header that precedes the data in the receive buffer.
pub(super) const HEADER_LENGTH: u64 = 40;

/// The bytes that the length field of the IP header counts in addition to the padded data. These are the UDP header,
/// the base header, the datagram header and the ICRC.
const OVERHEAD: u64 = 8 + 12 + 8 + 4;
const IPV4_HEADER: u64 = 20;
const IMMEDIATE: u64 = 4;
const UDP: u8 = 17;
/// The hop limit in the header if the path specifies none.
const HOP_LIMIT: u8 = 64;

/// Returns the Q_Key of a datagram. If the high bit of the request's Q_Key is set, the datagram carries the QP's own
/// Q_Key (InfiniBand specification, volume 1, section 10.2.5).
pub(super) fn key(given: u32, own: u32) -> u32 {
    if given & 0x8000_0000 == 0 { given } else { own }
}

pub(super) fn is_multicast_datagram(request: &Request, number: u32) -> bool {
    request.destination.is_multicast() || number == MULTICAST_NUMBER
}

/// Delivers a datagram to the members of the group in this process. The request completes when the datagram is sent.
/// Nothing reports whether a member received it.
///
/// Each member receives the datagram once. A sender that is a member receives it too, because no QP can request
/// `IBV_QP_CREATE_BLOCK_SELF_MCAST_LB`.
pub(super) fn send_to_group(request: &Request, exchange: &mut dyn Exchange) -> Reply {
    for member in QpRegistry::of_process().members(request.destination) {
        if member.handle(request, exchange) == Reply::LocalFault {
            return Reply::LocalFault;
        }
    }
    Reply::Done { original: 0 }
}

/// Builds the header that precedes the data. It is an IPv6 header, or an IPv4 header in the last 20 of the 40 bytes.
pub(super) fn header(request: &Request) -> [u8; HEADER_LENGTH as usize] {
    let immediate = if matches!(request.operation, Operation::SendImmediate { .. }) { IMMEDIATE } else { 0 };
    // The sum fits, because a datagram has at most 4096 bytes.
    let payload = (OVERHEAD + immediate + request.length.next_multiple_of(4)) as u16;
    let hop_limit = if request.hop_limit == 0 { HOP_LIMIT } else { request.hop_limit };
    let mut header = [0; HEADER_LENGTH as usize];
    match (request.source.ipv4(), request.destination.ipv4()) {
        (Some(source), Some(destination)) => {
            let header = &mut header[20..];
            header[0] = 0x45;
            header[1] = request.traffic_class;
            header[2..4].copy_from_slice(&(payload + IPV4_HEADER as u16).to_be_bytes());
            // The "don't fragment" flag.
            header[6] = 0x40;
            header[8] = hop_limit;
            header[9] = UDP;
            header[12..16].copy_from_slice(&source);
            header[16..20].copy_from_slice(&destination);
            let sum = check_sum(header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        _ => {
            let first = 6 << 28 | u32::from(request.traffic_class) << 20 | request.flow_label & 0xf_ffff;
            header[..4].copy_from_slice(&first.to_be_bytes());
            header[4..6].copy_from_slice(&payload.to_be_bytes());
            header[6] = UDP;
            header[7] = hop_limit;
            header[8..24].copy_from_slice(&request.source.0);
            header[24..].copy_from_slice(&request.destination.0);
        }
    }
    header
}

/// Computes the Internet checksum (RFC 1071) of a header. If the checksum field of the header is zero, the result is
/// the value of this field. If the header already contains its correct checksum, the result is zero.
pub(crate) fn check_sum(header: &[u8]) -> u16 {
    let mut sum: u32 = header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::super::Service;
    use super::*;
    use crate::wire::address::Gid;

    fn mapped(address: [u8; 4]) -> Gid {
        let mut gid = [0; 16];
        gid[10..12].fill(0xff);
        gid[12..].copy_from_slice(&address);
        Gid(gid)
    }

    fn request(source: Gid, destination: Gid, length: u64) -> Request {
        Request {
            service: Service::UnreliableDatagram,
            operation: Operation::Send,
            length,
            is_solicited: false,
            psn: 0,
            packets: 1,
            source_number: 2,
            source,
            destination,
            key: 1,
            traffic_class: 0x28,
            hop_limit: 3,
            flow_label: 0xabcde,
            service_level: 0,
            srq_number: 0,
        }
    }

    #[test]
    fn qkey_with_the_high_bit_selects_the_qps_own() {
        assert_eq!(key(0x1111_1111, 5), 0x1111_1111);
        assert_eq!(key(0x8000_0001, 5), 5);
    }

    #[test]
    fn checksum_matches_a_known_header() {
        // The example is from Wikipedia's page about the IPv4 header.
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0x00, 0x01, 0xc0, 0xa8, 0x00,
            0xc7,
        ];
        assert_eq!(check_sum(&header), 0xb861);
    }

    #[test]
    fn ipv4_header_is_in_the_last_bytes_and_sums_to_zero() {
        let header = header(&request(mapped([127, 0, 0, 1]), mapped([10, 0, 0, 2]), 5));
        assert_eq!(header[..20], [0; 20]);
        let ip = &header[20..];
        assert_eq!(ip[..2], [0x45, 0x28]);
        assert_eq!(u16::from_be_bytes([ip[2], ip[3]]), 20 + 8 + 12 + 8 + 8 + 4);
        assert_eq!((ip[8], ip[9]), (3, 17));
        assert_eq!((&ip[12..16], &ip[16..]), (&[127, 0, 0, 1][..], &[10, 0, 0, 2][..]));
        assert_eq!(check_sum(ip), 0);
    }

    #[test]
    fn ipv6_header_has_forty_bytes() {
        let mut source = [0; 16];
        source[15] = 1;
        let mut with_immediate = request(Gid(source), Gid([0xfd; 16]), 4096);
        with_immediate.operation = Operation::SendImmediate { immediate: 1 };
        with_immediate.hop_limit = 0;
        let header = header(&with_immediate);
        assert_eq!(header[..4], [0x62, 0x8a, 0xbc, 0xde]);
        assert_eq!(u16::from_be_bytes([header[4], header[5]]), 4096 + 36);
        assert_eq!((header[6], header[7]), (17, 64));
        assert_eq!((&header[8..24], &header[24..]), (&source[..], &[0xfd; 16][..]));
    }
}
