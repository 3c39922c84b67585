//! The header that precedes the data of a datagram. It is an IPv6 header, or twenty bytes followed by an IPv4 header.

use crate::qp::check_sum;
use crate::wire::address::Gid;

/// The header's length in bytes.
pub(super) const LENGTH: usize = 40;

/// The fields from which a reply address is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) source: Gid,
    pub(super) destination: Gid,
    pub(super) traffic_class: u8,
    /// The flow label, which only an IPv6 header contains.
    pub(super) flow_label: u32,
    pub(super) hop_limit: u8,
}

impl Header {
    /// Parses a header. Returns `None` if the bytes have neither form.
    pub(super) fn parse(bytes: &[u8; LENGTH]) -> Option<Self> {
        let is_ipv6 = bytes[0] >> 4 == 6;
        let (_, ipv4) = bytes.split_last_chunk::<20>()?;
        // The bytes in front of an IPv4 header are arbitrary and may look like an IPv6 header. The checksum then
        // decides.
        if ipv4[0] == 0x45 && (!is_ipv6 || check_sum(ipv4) == 0) {
            return Some(Self::of_ipv4(ipv4));
        }
        is_ipv6.then(|| Self::of_ipv6(bytes))
    }

    fn of_ipv4(bytes: &[u8; 20]) -> Self {
        let [_, traffic_class, .., s0, s1, s2, s3, d0, d1, d2, d3] = *bytes;
        Self {
            source: Gid::from_ipv4([s0, s1, s2, s3]),
            destination: Gid::from_ipv4([d0, d1, d2, d3]),
            traffic_class,
            flow_label: 0,
            hop_limit: bytes[8],
        }
    }

    fn of_ipv6(bytes: &[u8; LENGTH]) -> Self {
        let [a, b, c, d, ..] = *bytes;
        let first = u32::from_be_bytes([a, b, c, d]);
        Self {
            source: gid_at(bytes, 8),
            destination: gid_at(bytes, 24),
            // The traffic class is above the twenty bits of the flow label.
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0xf_ffff,
            hop_limit: bytes[7],
        }
    }
}

fn gid_at(bytes: &[u8; LENGTH], offset: usize) -> Gid {
    let mut gid = [0; 16];
    gid.copy_from_slice(&bytes[offset..offset + 16]);
    Gid(gid)
}
