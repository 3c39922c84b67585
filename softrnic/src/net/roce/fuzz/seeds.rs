//! Seeds of the fuzz corpus.

use std::net::Ipv4Addr;

use rdma_mummy_sys::rdma_port_space;

use super::FLOW;
use crate::net::roce::cm_message::*;
use crate::net::roce::icrc::icrc;
use crate::net::roce::packet::*;
use crate::wire::address::Gid;

const IDS: Ids = Ids { local: 1, remote: 2 };

/// Returns a packet with its ICRC.
fn datagram(transport: Transport, body: Body, payload: &[u8]) -> Vec<u8> {
    let packet = Packet {
        transport,
        body,
        is_solicited: false,
        asks: true,
        has_becn: false,
        partition: DEFAULT_PARTITION,
        destination: 0x11,
        psn: 0x0012_3456,
    };
    let mut bytes = Vec::new();
    packet.write(payload, &mut bytes);
    with_icrc(bytes)
}

fn with_icrc(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend(icrc(&FLOW, 77, &bytes));
    bytes
}

fn packets() -> Vec<(&'static str, Vec<u8>)> {
    let range = Range { address: 0x7000_0000_1000, rkey: 0x100, length: 2000 };
    let acknowledgement = Acknowledgement { syndrome: Syndrome::Ack, messages: 5 };
    let not_ready = Acknowledgement { syndrome: Syndrome::NotReady(12), messages: 5 };
    let send = Body::Send { place: Place::Only, end: SendEnd::Immediate(7) };
    let write = Body::Write { place: Place::First, range: Some(range), immediate: None };
    let (address, rkey) = (range.address, range.rkey);
    let good = |body, payload| datagram(Transport::Reliable, body, payload);
    let mut damaged = good(send, b"hello");
    damaged[20] ^= 1;
    let mut version = good(send, b"hello")[..24].to_vec();
    version[1] |= 1;
    vec![
        ("roce_packets/good-send", good(send, b"hello")),
        ("roce_packets/good-invalidate", good(Body::Send { place: Place::Last, end: SendEnd::Invalidate(1) }, b"")),
        ("roce_packets/good-write", good(write, &[9; 256])),
        ("roce_packets/good-read", good(Body::Read(range), b"")),
        (
            "roce_packets/good-read-response",
            good(Body::ReadResponse { place: Place::Last, acknowledgement: Some(acknowledgement) }, b"hello"),
        ),
        ("roce_packets/good-acknowledgement", good(Body::Acknowledge(acknowledgement), b"")),
        ("roce_packets/good-not-ready", good(Body::Acknowledge(not_ready), b"")),
        ("roce_packets/good-swap", good(Body::CompareSwap { address, rkey, compare: 1, swap: 2 }, b"")),
        ("roce_packets/good-add", good(Body::FetchAdd { address, rkey, add: 3 }, b"")),
        ("roce_packets/good-old-value", good(Body::AtomicAcknowledge { acknowledgement, original: 4 }, b"")),
        ("roce_packets/good-flush", good(Body::Flush { range, placement: 1, level: 0 }, b"")),
        ("roce_packets/good-atomic-write", good(Body::AtomicWrite(Range { length: 8, ..range }), b"8 bytes.")),
        ("roce_packets/good-unreliable", datagram(Transport::Unreliable, write, b"hello")),
        ("roce_packets/good-datagram", datagram(Transport::Datagram { key: 0x8001_0000, source: 1 }, send, b"hello")),
        ("roce_packets/good-extended", datagram(Transport::Extended { queue: 8 }, write, b"hello")),
        (
            "roce_packets/good-extended-response",
            datagram(Transport::ExtendedResponse, Body::Acknowledge(acknowledgement), b""),
        ),
        ("roce_packets/good-congestion", datagram(Transport::Congestion, Body::Congestion, b"")),
        ("roce_packets/bad-icrc", damaged),
        ("roce_packets/bad-version", with_icrc(version)),
        ("roce_packets/bad-opcode", with_icrc([&[0x15, 0x40, 0xff, 0xff][..], &[0; 8]].concat())),
        ("roce_packets/bad-padding", with_icrc([&[0x04, 0x70, 0xff, 0xff][..], &[0; 8]].concat())),
        ("roce_packets/bad-short", with_icrc(vec![0x04; 11])),
        ("roce_packets/bad-atomic-write", good(Body::AtomicWrite(range), b"16 bytes, 8 many")),
        ("roce_packets/bad-empty", Vec::new()),
    ]
}

fn req(private: [u8; Req::PRIVATE]) -> Message {
    Message::Req(Req {
        local_id: 1,
        ece: Ece::default(),
        service: service_id(rdma_port_space::RDMA_PS_TCP, 7471),
        guid: 0x0200_00ff_fe00_0001,
        qkey: 0,
        qp_number: 0x11,
        responder_resources: 4,
        initiator_depth: 4,
        remote_response_timeout: 20,
        local_response_timeout: 20,
        service_type: TransportService::Reliable,
        has_flow_control: true,
        starting_psn: 0x0012_3456,
        retry_count: 7,
        rnr_retry_count: 7,
        partition: DEFAULT_PARTITION,
        mtu: 3,
        max_cm_retries: 15,
        has_srq: false,
        path: PrimaryPath {
            local: FLOW.source,
            remote: FLOW.destination,
            flow_label: 0,
            packet_rate: 3,
            traffic_class: 0,
            hop_limit: 64,
            service_level: 0,
            is_subnet_local: false,
            ack_timeout: 17,
        },
        private,
    })
}

fn rep() -> Message {
    Message::Rep(Rep {
        ids: IDS,
        ece: Ece::default(),
        qkey: 0,
        qp_number: 0x12,
        starting_psn: 0x0065_4321,
        responder_resources: 4,
        initiator_depth: 4,
        ack_delay: 15,
        failover: 3,
        has_flow_control: true,
        rnr_retry_count: 7,
        has_srq: false,
        guid: 0x0200_00ff_fe00_0002,
        private: [0; Rep::PRIVATE],
    })
}

fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let v4 = |gid: Gid| gid.ipv4().map_or(Ipv4Addr::UNSPECIFIED, Ipv4Addr::from);
    let addresses = Addresses::V4 { source: v4(FLOW.source), destination: v4(FLOW.destination) };
    let v4 = AddressHeader { source_port: 40_000, addresses };
    let (source, destination) = (FLOW.source.0.into(), FLOW.destination.0.into());
    let v6 = AddressHeader { source_port: 40_000, addresses: Addresses::V6 { source, destination } };
    let service = service_id(rdma_port_space::RDMA_PS_UDP, 7471);
    let private = v6.before(b"hello").unwrap();
    let sidr_req = Message::SidrReq(SidrReq { request_id: 1, partition: DEFAULT_PARTITION, service, private });
    let sidr_rep = Message::SidrRep(SidrRep {
        request_id: 1,
        status: 0,
        ece: Ece::default(),
        qp_number: 0x12,
        service,
        qkey: 0x0123_4567,
        information: Information::NONE,
        private: [0; SidrRep::PRIVATE],
    });
    let rej = Message::Rej(Rej {
        ids: IDS,
        subject: Subject::Req,
        reason: 28,
        information: Information::NONE,
        private: [0; Rej::PRIVATE],
    });
    let mra = Message::Mra(Mra { ids: IDS, subject: Subject::Req, timeout: 20, private: [0; Mra::PRIVATE] });
    let bytes = |message: &Message| message.bytes(0x1234).to_vec();
    let changed = |message: &Message, at: usize, byte: u8| {
        let mut bytes = bytes(message);
        bytes[at] = byte;
        bytes
    };
    let request = req(v4.before(b"hello").unwrap());
    vec![
        ("roce_messages/good-req", bytes(&request)),
        ("roce_messages/good-req-ipv6", bytes(&req(v6.before(b"hello").unwrap()))),
        ("roce_messages/good-mra", bytes(&mra)),
        ("roce_messages/good-rej", bytes(&rej)),
        ("roce_messages/good-rep", bytes(&rep())),
        ("roce_messages/good-rtu", bytes(&Message::Rtu(Rtu { ids: IDS, private: [0; Rtu::PRIVATE] }))),
        (
            "roce_messages/good-dreq",
            bytes(&Message::Dreq(Dreq { ids: IDS, remote_qp_number: 0x11, private: [0; Dreq::PRIVATE] })),
        ),
        ("roce_messages/good-drep", bytes(&Message::Drep(Drep { ids: IDS, private: [0; Drep::PRIVATE] }))),
        ("roce_messages/good-sidr-req", bytes(&sidr_req)),
        ("roce_messages/good-sidr-rep", bytes(&sidr_rep)),
        ("roce_messages/bad-addresses", bytes(&req([0; Req::PRIVATE]))),
        ("roce_messages/bad-attribute", changed(&request, 17, 0x19)),
        ("roce_messages/bad-class", changed(&request, 1, 4)),
        ("roce_messages/bad-information", changed(&rej, 24 + 9, 0xff)),
        ("roce_messages/bad-short", bytes(&request)[..255].to_vec()),
    ]
}

pub(crate) fn all() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    packets().into_iter().chain(messages())
}
