//! The packets that the two ends of a connection exchange. All packets have the same size, and the receiver checks
//! every byte.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::net::iwarp::connect::MAX_PRIVATE_DATA;
use crate::wire::packet::MAX_NUMBER;
use crate::wire::transport::Fabric;

/// The size of a packet in bytes.
pub(super) const SIZE: usize = DATA + MAX_DATA;
/// The length of the longest private data.
const MAX_DATA: usize = data_length::REPLY;
/// The first bytes of a packet, which contain the version.
const MAGIC: [u8; 6] = *b"srncm\x01";
/// The offset of the private data.
const DATA: usize = 6 + 2 + 6 * 4 + 8 + 2 * ADDRESS;

/// The length of the private data of each kind of packet. It is the same as in InfiniBand packets.
pub(super) mod data_length {
    pub(in super::super) const REQUEST: usize = 56;
    pub(in super::super) const REPLY: usize = 196;
    pub(in super::super) const REJECT: usize = 148;
    pub(in super::super) const DATAGRAM_REQUEST: usize = 180;
    pub(in super::super) const DATAGRAM_REPLY: usize = 136;
}

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Request = 1,
    Reply,
    ReadyToUse,
    Reject,
    Disconnect,
    Disconnected,
    DatagramRequest,
    DatagramReply,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        const ALL: [Kind; 8] = [
            Kind::Request,
            Kind::Reply,
            Kind::ReadyToUse,
            Kind::Reject,
            Kind::Disconnect,
            Kind::Disconnected,
            Kind::DatagramRequest,
            Kind::DatagramReply,
        ];
        ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Returns the length of the private data, which is padded with zeros as in InfiniBand packets.
    pub(super) fn data_length(self) -> usize {
        match self {
            Self::Request => data_length::REQUEST,
            Self::Reply => data_length::REPLY,
            Self::Reject => data_length::REJECT,
            Self::DatagramRequest => data_length::DATAGRAM_REQUEST,
            Self::DatagramReply => data_length::DATAGRAM_REPLY,
            Self::ReadyToUse | Self::Disconnect | Self::Disconnected => 0,
        }
    }
}

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    /// The reason for a rejection. In a reply that accepts a datagram request, it is zero.
    pub(super) reason: u16,
    pub(super) qp_number: u32,
    /// The starting PSN of the sender.
    pub(super) psn: u32,
    pub(super) qkey: u32,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) flow_control: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) srq: u8,
    pub(super) traffic_class: u8,
    /// The vendor and the options of enhanced connection establishment.
    pub(super) ece: (u32, u32),
    /// The source and the destination of a request.
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    /// The private data. Its length is the one that the kind of the packet defines.
    pub(super) data: Vec<u8>,
}

/// The unspecified address.
const UNSPECIFIED: SocketAddr = SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0));

impl Message {
    /// Creates a packet whose fields are zero.
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            reason: 0,
            qp_number: 0,
            psn: 0,
            qkey: 0,
            responder_resources: 0,
            initiator_depth: 0,
            flow_control: 0,
            retry_count: 0,
            rnr_retry_count: 0,
            srq: 0,
            traffic_class: 0,
            ece: (0, 0),
            from: UNSPECIFIED,
            to: UNSPECIFIED,
            data: vec![0; kind.data_length()],
        }
    }

    /// Sets the private data. Returns `None` if it is too long.
    pub(super) fn with_data(mut self, data: &[u8]) -> Option<Self> {
        self.data.get_mut(..data.len())?.copy_from_slice(data);
        Some(self)
    }

    /// Sets the private data for a peer on a fabric. iWARP carries private data in its own frames, which have another
    /// limit. Returns `None` if the data is too long.
    pub(super) fn with_data_on(self, fabric: Fabric, data: &[u8]) -> Option<Self> {
        match fabric {
            Fabric::Host | Fabric::Roce => self.with_data(data),
            Fabric::Iwarp => (data.len() <= MAX_PRIVATE_DATA).then_some(self),
        }
    }

    pub(super) fn encode(&self) -> [u8; SIZE] {
        let mut packet = [0; SIZE];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            packet[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&MAGIC);
        put(&[self.kind as u8, 0]);
        for number in [self.qp_number, self.psn, self.qkey, self.ece.0, self.ece.1, u32::from(self.reason)] {
            put(&number.to_be_bytes());
        }
        put(&[self.responder_resources, self.initiator_depth, self.flow_control, self.retry_count]);
        put(&[self.rnr_retry_count, self.srq, self.traffic_class, 0]);
        for address in [self.from, self.to] {
            put(&address_bytes(address));
        }
        packet[DATA..DATA + self.data.len()].copy_from_slice(&self.data);
        packet
    }

    /// Decodes a packet. Returns `None` if it is malformed or has another version.
    pub(super) fn decode(packet: &[u8]) -> Option<Self> {
        if packet.len() != SIZE {
            return None;
        }
        let mut rest = packet;
        if take::<6>(&mut rest)? != MAGIC {
            return None;
        }
        let [kind, zero] = take(&mut rest)?;
        let kind = Kind::of(kind)?;
        let mut number = || take(&mut rest).map(u32::from_be_bytes);
        let (qp_number, psn, qkey) = (number()?, number()?, number()?);
        let ece = (number()?, number()?);
        let reason = u16::try_from(number()?).ok()?;
        let [responder_resources, initiator_depth, flow_control, retry_count] = take(&mut rest)?;
        let [rnr_retry_count, srq, traffic_class, last_zero] = take(&mut rest)?;
        let (from, to) = (address(&mut rest)?, address(&mut rest)?);
        let data = packet.get(DATA..DATA + kind.data_length())?.to_vec();
        let is_valid = zero == 0
            && last_zero == 0
            && qp_number <= MAX_NUMBER
            && psn <= MAX_NUMBER
            && retry_count <= 7
            && rnr_retry_count <= 7
            && packet[DATA + kind.data_length()..].iter().all(|&byte| byte == 0);
        is_valid.then_some(Self {
            kind,
            reason,
            qp_number,
            psn,
            qkey,
            responder_resources,
            initiator_depth,
            flow_control,
            retry_count,
            rnr_retry_count,
            srq,
            traffic_class,
            ece,
            from,
            to,
            data,
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

/// The length of an address, which consists of the family, the port, the scope and the IP address.
const ADDRESS: usize = 24;

fn address_bytes(address: SocketAddr) -> [u8; ADDRESS] {
    let mut bytes = [0; ADDRESS];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(address) => {
            bytes[0] = 4;
            bytes[8..12].copy_from_slice(&address.ip().octets());
        }
        SocketAddr::V6(address) => {
            bytes[0] = 6;
            bytes[4..8].copy_from_slice(&address.scope_id().to_be_bytes());
            bytes[8..].copy_from_slice(&address.ip().octets());
        }
    }
    bytes
}

fn address(rest: &mut &[u8]) -> Option<SocketAddr> {
    let [family, zero] = take(rest)?;
    let port = u16::from_be_bytes(take(rest)?);
    let scope = u32::from_be_bytes(take(rest)?);
    let octets: [u8; 16] = take(rest)?;
    let [a, b, c, d, others @ ..] = octets;
    match family {
        _ if zero != 0 => None,
        4 if scope == 0 && others == [0; 12] => Some(SocketAddr::new(IpAddr::from([a, b, c, d]), port)),
        6 => Some(SocketAddrV6::new(octets.into(), port, 0, scope).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addresses() -> impl Strategy<Value = SocketAddr> {
        prop_oneof![
            (any::<[u8; 4]>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip.into(), port)),
            (any::<[u8; 16]>(), any::<u16>(), any::<u32>()).prop_map(|(ip, port, scope)| SocketAddrV6::new(
                ip.into(),
                port,
                0,
                scope
            )
            .into()),
        ]
    }

    prop_compose! {
        fn messages()(
            kind in 1_u8..=8,
            numbers in (0..=MAX_NUMBER, 0..=MAX_NUMBER, any::<u32>()),
            bytes in any::<[u8; 5]>(),
            retries in (0_u8..=7, 0_u8..=7),
            ece in any::<(u32, u32)>(),
            reason in any::<u16>(),
            from in addresses(),
            to in addresses(),
            data in proptest::collection::vec(any::<u8>(), MAX_DATA),
        ) -> Message {
            let Some(kind) = Kind::of(kind) else { panic!("{kind}") };
            Message {
                reason,
                qp_number: numbers.0,
                psn: numbers.1,
                qkey: numbers.2,
                responder_resources: bytes[0],
                initiator_depth: bytes[1],
                flow_control: bytes[2],
                srq: bytes[3],
                traffic_class: bytes[4],
                retry_count: retries.0,
                rnr_retry_count: retries.1,
                ece,
                from,
                to,
                data: data[..kind.data_length()].to_vec(),
                ..Message::new(kind)
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn decoded_message_equals_the_encoded_one(message in messages()) {
            prop_assert_eq!(Message::decode(&message.encode()), Some(message));
        }

        #[test]
        fn decoded_packets_are_canonical(message in messages(), place in 0..SIZE, byte: u8) {
            let mut packet = message.encode();
            packet[place] = byte;
            if let Some(read) = Message::decode(&packet) {
                prop_assert_eq!(read.encode(), packet);
            }
        }

        #[test]
        fn malformed_packets_are_refused(packet in proptest::collection::vec(any::<u8>(), 0..SIZE + 2)) {
            prop_assert_eq!(Message::decode(&packet), None);
        }
    }

    #[test]
    fn private_data_has_the_length_of_its_kind() {
        for kind in [Kind::Request, Kind::Reply, Kind::Reject, Kind::DatagramRequest, Kind::DatagramReply] {
            let most = vec![7; kind.data_length()];
            assert_eq!(Message::new(kind).with_data(&most).map(|message| message.data), Some(most), "{kind:?}");
            assert_eq!(Message::new(kind).with_data(&vec![7; kind.data_length() + 1]), None, "{kind:?}");
        }
        assert_eq!(Message::new(Kind::Request).with_data(b"a").map(|message| message.data.len()), Some(56));
    }
}
