//! The invariant CRC of a packet (ICRC).
//!
//! It is the CRC-32 of Ethernet, stored in little-endian order. It covers the IP and UDP headers too. Bytes of ones
//! replace the fields that routers may change: the TOS, the TTL and the checksum of IPv4; the traffic class, the flow
//! label and the hop limit of IPv6; the checksum of UDP; and the byte of the BTH with FECN and BECN.

use std::mem;

use crc32fast::Hasher;

use crate::wire::address::Gid;

/// The IP addresses and UDP ports that the ICRC covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) source: Gid,
    pub(crate) destination: Gid,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
}

/// The length of the ICRC.
pub(crate) const LENGTH: usize = 4;

/// The CRC of eight bytes of ones, which replace the local route header of InfiniBand.
const SEED: u32 = 0x2144_df1c;

const IPV4_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const BTH: usize = 12;
const UDP: u8 = 17;
const DONT_FRAGMENT: u8 = 0x40;

/// The number of bytes from the Identification of the IPv4 header to the end of the UDP header.
const FROM_IDENTIFICATION: usize = IPV4_HEADER - 4 + UDP_HEADER;

/// Returns the ICRC of a packet with the bytes of `bytes`, from the first byte of its BTH to the last one of its padding.
/// `identification` is the one of the IPv4 header, which has DF set and no options; IPv6 has none.
pub(crate) fn icrc(flow: &Flow, identification: u16, bytes: &[u8]) -> [u8; LENGTH] {
    // The conversion is lossless, because the length of a packet has 16 bits.
    let udp_length = (UDP_HEADER + bytes.len() + LENGTH) as u16;
    let mut headers = [0xff; 40 + UDP_HEADER + BTH];
    let mut rest = &mut headers[..];
    let mut put = |bytes: &[u8]| {
        let (start, end) = mem::take(&mut rest).split_at_mut(bytes.len());
        start.copy_from_slice(bytes);
        rest = end;
    };
    if let (Some(source), Some(destination)) = (flow.source.ipv4(), flow.destination.ipv4()) {
        let [a, b] = udp_length.wrapping_add(IPV4_HEADER as u16).to_be_bytes();
        let [c, d] = identification.to_be_bytes();
        put(&[0x45, 0xff, a, b, c, d, DONT_FRAGMENT, 0, 0xff, UDP, 0xff, 0xff]);
        put(&source);
        put(&destination);
    } else {
        let [a, b] = udp_length.to_be_bytes();
        put(&[0x6f, 0xff, 0xff, 0xff, a, b, UDP, 0xff]);
        put(&flow.source.0);
        put(&flow.destination.0);
    }
    put(&flow.source_port.to_be_bytes());
    put(&flow.destination_port.to_be_bytes());
    put(&udp_length.to_be_bytes());
    put(&[0xff, 0xff]);
    let (bth, payload) = bytes.split_at(BTH.min(bytes.len()));
    put(bth);
    let left = rest.len();
    let length = headers.len() - left;
    if let Some(congestion) = headers.get_mut(length - bth.len()..).and_then(|bth| bth.get_mut(4)) {
        *congestion = 0xff;
    }
    let mut hasher = Hasher::new_with_initial(SEED);
    hasher.update(&headers[..length]);
    hasher.update(payload);
    hasher.finalize().to_le_bytes()
}

/// Returns the Identification of the IPv4 header for which `expected` is the ICRC of a packet; see [`icrc`]. Returns
/// `None` if there is none, which shows that the packet is damaged. For IPv6, a packet that is intact has the
/// Identification 0.
///
/// UDP sockets do not report the Identification of a received packet. Of 65536 damaged packets, one is accepted: a
/// caller that expects a certain Identification should compare the ICRC for this one first.
pub(crate) fn identification_of(flow: &Flow, bytes: &[u8], expected: [u8; LENGTH]) -> Option<u16> {
    let difference = u32::from_le_bytes(icrc(flow, 0, bytes)) ^ u32::from_le_bytes(expected);
    if difference == 0 {
        return Some(0);
    }
    if flow.source.ipv4().is_none() || flow.destination.ipv4().is_none() {
        return None;
    }
    // CRCs are linear: the difference is the CRC of a packet of zeros with the Identification alone, which is its
    // polynomial, multiplied by x for each bit that follows its start.
    let start = divide(difference, FROM_IDENTIFICATION + bytes.len());
    match start.to_le_bytes() {
        [first, second, 0, 0] => Some(u16::from_be_bytes([first, second])),
        _ => None,
    }
}

/// The polynomial of the CRC. The most significant bit is the coefficient of 1, and the least significant one that of
/// x³¹. The coefficient of x³² is not stored.
const POLYNOMIAL: u32 = 0xedb8_8320;
const ONE: u32 = 1 << 31;

/// Element `n` is x to the power of `-8 * 2ⁿ`, which divides by 2ⁿ bytes.
const INVERSES: [u32; usize::BITS as usize] = {
    let mut inverses = [0; usize::BITS as usize];
    let mut power = ONE;
    let mut count = 0;
    while count < 8 {
        // The polynomial has the coefficient 1 of 1, so one of the two polynomials is a multiple of x.
        power = if power & ONE == 0 { power << 1 } else { (power ^ POLYNOMIAL) << 1 | 1 };
        count += 1;
    }
    let mut index = 0;
    while index < inverses.len() {
        inverses[index] = power;
        power = multiply(power, power);
        index += 1;
    }
    inverses
};

/// Divides a polynomial by x to the power of eight times `bytes`.
fn divide(polynomial: u32, bytes: usize) -> u32 {
    let is_factor = |index: usize| bytes >> index & 1 != 0;
    let factors = INVERSES.iter().enumerate().filter(|(index, _)| is_factor(*index));
    factors.fold(polynomial, |product, (_, factor)| multiply(product, *factor))
}

const fn multiply(one: u32, mut other: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        product ^= other & (one >> bit & 1).wrapping_neg();
        other = other >> 1 ^ POLYNOMIAL & (other & 1).wrapping_neg();
    }
    product
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::net::roce::packet::PORT;

    /// A congestion notification that a ConnectX-4 Lx sent, from a packet capture.
    const NOTIFICATION: [u8; 28] =
        [0x81, 0, 0xff, 0xff, 0x40, 0, 1, 0x18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    /// A message of UC with two bytes of padding, from a packet capture.
    const MESSAGE: &[u8] = b"\x24\x60\xff\xff\0\0\0\xd3\0\xcf\x17\x10\
        F0\x81\x8b\xe2\x895\xd9\x0e\x9a\x95PT\x01\xbe\x88^P\0\0";

    fn flow(source: &str, destination: &str, source_port: u16) -> Flow {
        let gid = |address: &str| match address.parse().unwrap() {
            std::net::IpAddr::V4(address) => Gid::from_ipv4(address.octets()),
            std::net::IpAddr::V6(address) => address.into(),
        };
        Flow { source: gid(source), destination: gid(destination), source_port, destination_port: PORT }
    }

    #[test]
    fn captured_packets_have_the_icrc_of_the_capture() {
        let notification = flow("10.0.17.1", "10.0.18.1", 0);
        assert_eq!(icrc(&notification, 0x718c, &NOTIFICATION), [0x82, 0xfd, 0x00, 0x2a]);
        let message = flow("192.168.0.7", "192.168.0.7", 49152);
        assert_eq!(icrc(&message, 1144, MESSAGE), [0x78, 0xf3, 0x53, 0xf3]);
    }

    #[test]
    fn identification_of_captured_packets_is_found() {
        let notification = flow("10.0.17.1", "10.0.18.1", 0);
        assert_eq!(identification_of(&notification, &NOTIFICATION, [0x82, 0xfd, 0x00, 0x2a]), Some(0x718c));
        let message = flow("192.168.0.7", "192.168.0.7", 49152);
        assert_eq!(identification_of(&message, MESSAGE, [0x78, 0xf3, 0x53, 0xf3]), Some(1144));
        assert_eq!(identification_of(&message, MESSAGE, [0x78, 0xf3, 0x53, 0xf2]), None);
    }

    /// The expected bytes come from another implementation, whose IPv6 packets rdma_rxe accepts.
    #[test]
    fn ipv6_packet_has_the_icrc_that_rxe_accepts() {
        let acknowledgement = [0x11, 0x40, 0xff, 0xff, 0, 0, 0, 0x12, 0, 0, 0, 7, 0x1f, 0, 0, 3];
        let flow = flow("2001:db8::1", "2001:db8::2", 0xc000);
        let expected = [0x27, 0x5a, 0x80, 0xe2];
        assert_eq!(icrc(&flow, 7, &acknowledgement), expected);
        assert_eq!(identification_of(&flow, &acknowledgement, expected), Some(0));
        assert_eq!(identification_of(&flow, &acknowledgement, [0x27, 0x5a, 0x80, 0xe3]), None);
    }

    #[test]
    fn congestion_bits_are_not_covered() {
        let flow = flow("10.0.17.1", "10.0.18.1", 0);
        let changed = |index: usize| {
            let mut bytes = NOTIFICATION;
            bytes[index] ^= 0xc0;
            icrc(&flow, 1, &bytes) != icrc(&flow, 1, &NOTIFICATION)
        };
        let not_covered: Vec<_> = (0..NOTIFICATION.len()).filter(|index| !changed(*index)).collect();
        assert_eq!(not_covered, [4]);
    }

    #[test]
    fn packet_with_a_damaged_bit_has_no_identification() {
        let flow = flow("192.168.0.7", "192.168.0.7", 49152);
        let sum = icrc(&flow, 1144, MESSAGE);
        for bit in (0..MESSAGE.len() * 8).filter(|bit| bit / 8 != 4) {
            let mut bytes = MESSAGE.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(identification_of(&flow, &bytes, sum), None, "bit {bit}");
        }
        for bit in 0..32 {
            let mut sum = sum;
            sum[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(identification_of(&flow, MESSAGE, sum), None, "bit {bit} of the ICRC");
        }
    }

    #[test]
    fn seed_is_the_crc_of_eight_bytes_of_ones() {
        assert_eq!(crc32fast::hash(&[0xff; 8]), SEED);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 256 }, ..Default::default() })]

        #[test]
        fn each_identification_is_found(
            source: [u8; 4], port: u16, identification: u16, bytes in proptest::collection::vec(any::<u8>(), 0..4200),
        ) {
            let flow = Flow {
                source: Gid::from_ipv4(source),
                destination: Gid::from_ipv4([10, 0, 0, 1]),
                source_port: port,
                destination_port: PORT,
            };
            let sum = icrc(&flow, identification, &bytes);
            prop_assert_eq!(identification_of(&flow, &bytes, sum), Some(identification));
        }
    }
}
