//! What the two ends of a connection say to each other: packets of one size, of which each byte is looked at.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::wire::packet::MAX_NUMBER;

/// Bytes of a packet.
pub(super) const SIZE: usize = DATA + MOST_DATA;
/// The most private data that any of them carries.
const MOST_DATA: usize = room::REPLY;
/// How packets of this version begin.
const MAGIC: [u8; 6] = *b"srncm\x01";
/// Where the private data stands.
const DATA: usize = 6 + 2 + 6 * 4 + 8 + 2 * ADDRESS;

/// Bytes of private data that each kind carries: as much as the packets of InfiniBand.
pub(super) mod room {
    pub(in super::super) const REQUEST: usize = 56;
    pub(in super::super) const REPLY: usize = 196;
    pub(in super::super) const REJECT: usize = 148;
    pub(in super::super) const DATAGRAM_REQUEST: usize = 180;
    pub(in super::super) const DATAGRAM_REPLY: usize = 136;
}

/// What a packet is.
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

    /// Bytes of private data, which arrive whole and filled up with zeros, as on a wire.
    pub(super) fn room(self) -> usize {
        match self {
            Self::Request => room::REQUEST,
            Self::Reply => room::REPLY,
            Self::Reject => room::REJECT,
            Self::DatagramRequest => room::DATAGRAM_REQUEST,
            Self::DatagramReply => room::DATAGRAM_REPLY,
            Self::ReadyToUse | Self::Disconnect | Self::Disconnected => 0,
        }
    }
}

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    /// Why it is rejected; in the answer to a datagram request, zero where it is not.
    pub(super) reason: u16,
    pub(super) qp_number: u32,
    /// The packet number that the sender begins with.
    pub(super) psn: u32,
    pub(super) qkey: u32,
    /// As the sender gave them.
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) flow_control: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) srq: u8,
    pub(super) traffic_class: u8,
    /// Extensions: a vendor, and its options.
    pub(super) ece: (u32, u32),
    /// In requests: who asks, and for whom.
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    /// As long as the kind has room for.
    pub(super) data: Vec<u8>,
}

/// No address.
const NOWHERE: SocketAddr = SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0));

impl Message {
    /// One with zeros in it.
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
            from: NOWHERE,
            to: NOWHERE,
            data: vec![0; kind.room()],
        }
    }

    /// With this private data; `None` where there is no room for it.
    pub(super) fn with_data(mut self, data: &[u8]) -> Option<Self> {
        self.data.get_mut(..data.len())?.copy_from_slice(data);
        Some(self)
    }

    /// As it is sent.
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

    /// What was sent; `None` where it is nothing that this version sends.
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
        let data = packet.get(DATA..DATA + kind.room())?.to_vec();
        let is_valid = zero == 0
            && last_zero == 0
            && qp_number <= MAX_NUMBER
            && psn <= MAX_NUMBER
            && retry_count <= 7
            && rnr_retry_count <= 7
            && packet[DATA + kind.room()..].iter().all(|&byte| byte == 0);
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

/// Bytes of an address: its family, its port, its scope, and itself.
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
            data in proptest::collection::vec(any::<u8>(), MOST_DATA),
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
                data: data[..kind.room()].to_vec(),
                ..Message::new(kind)
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_sent_arrives(message in messages()) {
            prop_assert_eq!(Message::decode(&message.encode()), Some(message));
        }

        #[test]
        fn a_packet_that_is_read_is_one_that_is_sent(message in messages(), place in 0..SIZE, byte: u8) {
            let mut packet = message.encode();
            packet[place] = byte;
            if let Some(read) = Message::decode(&packet) {
                prop_assert_eq!(read.encode(), packet);
            }
        }

        #[test]
        fn garbage_is_nothing(packet in proptest::collection::vec(any::<u8>(), 0..SIZE + 2)) {
            prop_assert_eq!(Message::decode(&packet), None);
        }
    }

    #[test]
    fn private_data_has_the_room_of_its_kind() {
        for kind in [Kind::Request, Kind::Reply, Kind::Reject, Kind::DatagramRequest, Kind::DatagramReply] {
            let most = vec![7; kind.room()];
            assert_eq!(Message::new(kind).with_data(&most).map(|message| message.data), Some(most), "{kind:?}");
            assert_eq!(Message::new(kind).with_data(&vec![7; kind.room() + 1]), None, "{kind:?}");
        }
        assert_eq!(Message::new(Kind::Request).with_data(b"a").map(|message| message.data.len()), Some(56));
    }
}
