//! `struct ibv_grh`: the header in front of a received datagram.

use std::net::Ipv4Addr;
use std::{fmt, ptr};

use rdma_mummy_sys::ibv_grh;

use super::Gid;

/// The offset of the IPv4 header if the datagram arrived with RoCE v2 over IPv4.
const IPV4: usize = 20;

/// The length of an IPv4 header without options, in bytes.
const IPV4_LENGTH: usize = 20;

/// `struct ibv_grh` — the 40 bytes in front of a received datagram. They may have any of three formats.
///
/// Every receive of a datagram reserves these bytes at the start of its buffer. A
/// [flag](crate::ibverbs::completion::WorkCompletionFlags::GlobalRoutingHeader) of the completion states whether the
/// device wrote them; on Ethernet it always does. On InfiniBand and with RoCE v1, the bytes are a global routing
/// header. With RoCE v2 over IPv6, they are the IPv6 header, which has the same layout. With RoCE v2 over IPv4, they
/// are 20 unused bytes followed by the IPv4 header.
///
/// All byte values are valid.
///
/// ```
/// use sideway::ibverbs::address::{GlobalRoutingHeader, RoutingHeaderForm};
///
/// let received = [0_u8; 64];
/// let header = GlobalRoutingHeader::from_prefix(&received).ok_or("shorter than 40 bytes")?;
/// assert_eq!(header.form(), RoutingHeaderForm::Unknown);
/// # Ok::<(), &str>(())
/// ```
#[doc(alias = "ibv_grh")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct GlobalRoutingHeader {
    bytes: [u8; Self::LENGTH],
}

/// The format of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RoutingHeaderForm {
    /// A global routing header, or an IPv6 header.
    Global,
    /// An IPv4 header, in the second half of the bytes.
    Ipv4,
    /// Neither of these headers. The fields have no meaning then; the methods read them as if the header were a global
    /// routing header.
    Unknown,
}

impl GlobalRoutingHeader {
    /// The number of bytes before a datagram's data.
    pub const LENGTH: usize = 40;

    /// Creates the header from these bytes, in the order received.
    pub const fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        Self { bytes }
    }

    /// Creates the header from the start of a buffer. Returns `None` if the buffer is shorter than 40 bytes.
    pub fn from_prefix(buffer: &[u8]) -> Option<Self> {
        buffer.first_chunk().map(|bytes| Self { bytes: *bytes })
    }

    /// Returns the bytes.
    pub const fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.bytes
    }

    /// Returns the format. If the bytes match both formats, the header is IPv4 if its checksum is correct; libibverbs
    /// decides in the same way.
    pub fn form(&self) -> RoutingHeaderForm {
        let is_global = self.byte(0) >> 4 == 6;
        let is_ipv4 = self.byte(IPV4) >> 4 == 4;
        let is_plain_ipv4 = self.byte(IPV4) == 0x45;
        match (is_global, is_ipv4) {
            (false, false) => RoutingHeaderForm::Unknown,
            (false, true) => RoutingHeaderForm::Ipv4,
            (true, _) if is_plain_ipv4 && self.ipv4_checksum_is_right() => RoutingHeaderForm::Ipv4,
            (true, _) => RoutingHeaderForm::Global,
        }
    }

    /// Returns the sender's GID. An IPv4 address is returned in the mapped form.
    pub fn source_gid(&self) -> Gid {
        match self.form() {
            RoutingHeaderForm::Ipv4 => self.ipv4_address(IPV4 + 12).into(),
            _ => self.gid(8),
        }
    }

    /// Returns the destination GID. An IPv4 address is returned in the mapped form.
    pub fn dest_gid(&self) -> Gid {
        match self.form() {
            RoutingHeaderForm::Ipv4 => self.ipv4_address(IPV4 + 16).into(),
            _ => self.gid(24),
        }
    }

    /// Returns the traffic class, which for IPv4 is the TOS byte. DSCP is in its upper six bits, and ECN in its lower
    /// two.
    pub fn traffic_class(&self) -> u8 {
        match self.form() {
            RoutingHeaderForm::Ipv4 => self.byte(IPV4 + 1),
            _ => (self.first_word() >> 20) as u8,
        }
    }

    /// Returns the flow label, 20 bits in host order. Returns 0 for IPv4, which has no flow label.
    pub fn flow_label(&self) -> u32 {
        match self.form() {
            RoutingHeaderForm::Ipv4 => 0,
            _ => self.first_word() & 0xf_ffff,
        }
    }

    /// Returns the remaining hop limit, which for IPv4 is the TTL.
    pub fn hop_limit(&self) -> u8 {
        match self.form() {
            RoutingHeaderForm::Ipv4 => self.byte(IPV4 + 8),
            _ => self.byte(7),
        }
    }

    /// Returns the type of the next header: 0x1b for an InfiniBand transport header, 17 for UDP.
    pub fn next_header(&self) -> u8 {
        match self.form() {
            RoutingHeaderForm::Ipv4 => self.byte(IPV4 + 9),
            _ => self.byte(6),
        }
    }

    /// Returns the number of bytes after this header in the packet, including other headers and checksums.
    pub fn payload_length(&self) -> u16 {
        match self.form() {
            RoutingHeaderForm::Ipv4 => self.half_word(IPV4 + 2).saturating_sub(IPV4_LENGTH as u16),
            _ => self.half_word(4),
        }
    }

    /// Returns the C struct.
    pub(super) fn to_raw(self) -> ibv_grh {
        const _: () = assert!(size_of::<ibv_grh>() == GlobalRoutingHeader::LENGTH);
        // SAFETY: the array has the size of an ibv_grh. All bytes are a valid ibv_grh, because it has only integers.
        unsafe { ptr::read_unaligned(self.bytes.as_ptr().cast()) }
    }

    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    fn half_word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.byte(at), self.byte(at + 1)])
    }

    fn first_word(&self) -> u32 {
        u32::from(self.half_word(0)) << 16 | u32::from(self.half_word(2))
    }

    fn gid(&self, at: usize) -> Gid {
        let raw = self.bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default();
        Gid { raw }
    }

    fn ipv4_address(&self, at: usize) -> Ipv4Addr {
        [self.byte(at), self.byte(at + 1), self.byte(at + 2), self.byte(at + 3)].into()
    }

    /// RFC 791: the ones' complement sum of all 16-bit words, including the checksum, has all bits set.
    fn ipv4_checksum_is_right(&self) -> bool {
        let sum: u32 = (IPV4..IPV4 + IPV4_LENGTH).step_by(2).map(|at| u32::from(self.half_word(at))).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        (folded & 0xffff) + (folded >> 16) == 0xffff
    }
}

impl fmt::Debug for GlobalRoutingHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GlobalRoutingHeader")
            .field("form", &self.form())
            .field("source_gid", &self.source_gid())
            .field("dest_gid", &self.dest_gid())
            .field("traffic_class", &self.traffic_class())
            .field("flow_label", &self.flow_label())
            .field("hop_limit", &self.hop_limit())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A packet from 192.0.2.1 to 192.0.2.2 with TOS 0xb8, TTL 63, UDP and a total length of 60 bytes. The checksum was
    /// computed by hand.
    fn ipv4() -> [u8; 40] {
        let mut bytes = [0; 40];
        let header = [0x45, 0xb8, 0, 60, 0, 0, 0x40, 0, 63, 17, 0xb6, 0xf5, 192, 0, 2, 1, 192, 0, 2, 2];
        bytes[20..].copy_from_slice(&header);
        bytes
    }

    fn global() -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[..8].copy_from_slice(&[0x6b, 0x8a, 0xbc, 0xde, 0x01, 0x02, 0x1b, 64]);
        (bytes[8], bytes[9], bytes[23]) = (0xfe, 0x80, 1);
        (bytes[24], bytes[25], bytes[39]) = (0xfe, 0x80, 2);
        bytes
    }

    #[test]
    fn global_header_fields_are_read() {
        let header = GlobalRoutingHeader::from_bytes(global());
        assert_eq!(header.form(), RoutingHeaderForm::Global);
        assert_eq!(header.source_gid(), "fe80::1".parse().unwrap());
        assert_eq!(header.dest_gid(), "fe80::2".parse().unwrap());
        assert_eq!((header.traffic_class(), header.flow_label(), header.hop_limit()), (0xb8, 0xabcde, 64));
        assert_eq!((header.next_header(), header.payload_length()), (0x1b, 0x102));
    }

    #[test]
    fn ipv4_header_is_read_after_padding() {
        let mut bytes = ipv4();
        for padding in [0, 0x60, 0xff] {
            bytes[..20].fill(padding);
            let header = GlobalRoutingHeader::from_bytes(bytes);
            assert_eq!(header.form(), RoutingHeaderForm::Ipv4, "{padding:#x}");
            assert_eq!(header.source_gid(), "::ffff:192.0.2.1".parse().unwrap());
            assert_eq!(header.dest_gid(), "::ffff:192.0.2.2".parse().unwrap());
            assert_eq!((header.traffic_class(), header.flow_label(), header.hop_limit()), (0xb8, 0, 63));
            assert_eq!((header.next_header(), header.payload_length()), (17, 40));
        }
    }

    #[test]
    fn ambiguous_header_is_decided_by_checksum() {
        let mut bytes = ipv4();
        bytes[0] = 0x60;
        bytes[30] ^= 1;
        assert_eq!(GlobalRoutingHeader::from_bytes(bytes).form(), RoutingHeaderForm::Global);
        bytes[0] = 0;
        assert_eq!(GlobalRoutingHeader::from_bytes(bytes).form(), RoutingHeaderForm::Ipv4, "nothing else is left");
    }

    #[test]
    fn short_buffer_has_no_header() {
        assert_eq!(GlobalRoutingHeader::from_prefix(&[0; 39]), None);
        let mut buffer = [7; 41];
        buffer[..40].copy_from_slice(&global());
        assert_eq!(GlobalRoutingHeader::from_prefix(&buffer), Some(GlobalRoutingHeader::from_bytes(global())));
    }

    #[test]
    fn c_struct_keeps_the_bytes() {
        let raw = GlobalRoutingHeader::from_bytes(global()).to_raw();
        assert_eq!(u32::from_be(raw.version_tclass_flow), 0x6b8a_bcde);
        assert_eq!((u16::from_be(raw.paylen), raw.next_hdr, raw.hop_limit), (0x102, 0x1b, 64));
        assert_eq!(Gid::from(raw.dgid), "fe80::2".parse().unwrap());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes: [u8; 40]) {
            let header = GlobalRoutingHeader::from_bytes(bytes);
            let text = format!("{header:?} {} {}", header.next_header(), header.payload_length());
            prop_assert!(text.contains("source_gid"));
            prop_assert!(header.flow_label() <= 0xf_ffff);
            prop_assert_eq!(header.form() == RoutingHeaderForm::Ipv4, header.source_gid() == Gid::from(Ipv4Addr::from(
                [bytes[32], bytes[33], bytes[34], bytes[35]])));
        }

        #[test]
        fn correct_checksum_is_recognized(mut bytes: [u8; 40]) {
            (bytes[0], bytes[20], bytes[30], bytes[31]) = (0x60, 0x45, 0, 0);
            let half = |at: usize| u32::from(bytes[at]) << 8 | u32::from(bytes[at + 1]);
            let mut sum: u32 = (20..40).step_by(2).map(half).sum();
            while sum > 0xffff {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            [bytes[30], bytes[31]] = (!(sum as u16)).to_be_bytes();
            prop_assert_eq!(GlobalRoutingHeader::from_bytes(bytes).form(), RoutingHeaderForm::Ipv4);
        }
    }
}
