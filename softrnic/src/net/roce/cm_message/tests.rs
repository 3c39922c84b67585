use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;
use rdma_mummy_sys::rdma_port_space;

use super::*;
use crate::wire::address::Gid;

const IDS: Ids = Ids { local: 0, remote: 0 };
const ECE: Ece = Ece { vendor: 0, options: 0 };

const REQ: Req = Req {
    local_id: 0,
    ece: ECE,
    service: 0,
    guid: 0,
    qkey: 0,
    qp_number: 0,
    responder_resources: 0,
    initiator_depth: 0,
    remote_response_timeout: 0,
    local_response_timeout: 0,
    service_type: TransportService::Reliable,
    has_flow_control: false,
    starting_psn: 0,
    retry_count: 0,
    rnr_retry_count: 0,
    partition: 0,
    mtu: 0,
    max_cm_retries: 0,
    has_srq: false,
    path: PrimaryPath {
        local: Gid::ZERO,
        remote: Gid::ZERO,
        flow_label: 0,
        packet_rate: 0,
        traffic_class: 0,
        hop_limit: 0,
        service_level: 0,
        is_subnet_local: false,
        ack_timeout: 0,
    },
    private: [0; 92],
};

const REP: Rep = Rep {
    ids: IDS,
    ece: ECE,
    qkey: 0,
    qp_number: 0,
    starting_psn: 0,
    responder_resources: 0,
    initiator_depth: 0,
    ack_delay: 0,
    failover: 0,
    has_flow_control: false,
    rnr_retry_count: 0,
    has_srq: false,
    guid: 0,
    private: [0; 196],
};

const REJ: Rej = Rej { ids: IDS, subject: Subject::Req, reason: 0, information: Information::NONE, private: [0; 148] };
const MRA: Mra = Mra { ids: IDS, subject: Subject::Req, timeout: 0, private: [0; 222] };
const RTU: Rtu = Rtu { ids: IDS, private: [0; 224] };
const DREQ: Dreq = Dreq { ids: IDS, remote_qp_number: 0, private: [0; 220] };
const DREP: Drep = Drep { ids: IDS, private: [0; 224] };
const SIDR_REQ: SidrReq = SidrReq { request_id: 0, partition: 0, service: 0, private: [0; 216] };
const SIDR_REP: SidrRep = SidrRep {
    request_id: 0,
    status: 0,
    ece: ECE,
    qp_number: 0,
    service: 0,
    qkey: 0,
    information: Information::NONE,
    private: [0; 136],
};

/// Checks that a message which is zero except for one field has these bytes at the offset of the field, and that the
/// field is read.
#[track_caller]
fn check(message: Message, at: usize, field: &[u8]) {
    let bytes = message.bytes(7);
    let mut expected = [0; 232];
    if matches!(message, Message::Req(_)) {
        expected[52..56].copy_from_slice(&[0xff; 4]);
    }
    expected[at..at + field.len()].copy_from_slice(field);
    assert_eq!(bytes[24..], expected);
    assert_eq!(Message::read(&bytes), Ok((7, message)));
}

#[test]
fn req_has_the_layout_of_the_specification() {
    let check = |req: Req, at: usize, field: &[u8]| check(Message::Req(req), at, field);
    check(Req { local_id: 0x0102_0304, ..REQ }, 0, &[1, 2, 3, 4]);
    check(Req { ece: Ece { vendor: 0x0001_0203, options: 9 }, ..REQ }, 5, &[1, 2, 3]);
    check(Req { service: 0x0102_0304_0506_0708, ..REQ }, 8, &[1, 2, 3, 4, 5, 6, 7, 8]);
    check(Req { guid: 0x0102_0304_0506_0708, ..REQ }, 16, &[1, 2, 3, 4, 5, 6, 7, 8]);
    check(Req { qkey: 0x0102_0304, ..REQ }, 28, &[1, 2, 3, 4]);
    check(Req { qp_number: 0x0001_0203, ..REQ }, 32, &[1, 2, 3]);
    check(Req { responder_resources: 0xff, ..REQ }, 35, &[0xff]);
    check(Req { initiator_depth: 0xff, ..REQ }, 39, &[0xff]);
    check(Req { remote_response_timeout: 0x1f, ..REQ }, 43, &[0xf8]);
    check(Req { service_type: TransportService::Unreliable, ..REQ }, 43, &[2]);
    check(Req { service_type: TransportService::ReliableDatagram, ..REQ }, 43, &[4]);
    check(Req { service_type: TransportService::Extended(0), ..REQ }, 43, &[6]);
    check(Req { has_flow_control: true, ..REQ }, 43, &[1]);
    check(Req { starting_psn: 0x0001_0203, ..REQ }, 44, &[1, 2, 3]);
    check(Req { local_response_timeout: 0x1f, ..REQ }, 47, &[0xf8]);
    check(Req { retry_count: 7, ..REQ }, 47, &[7]);
    check(Req { partition: 0x0102, ..REQ }, 48, &[1, 2]);
    check(Req { mtu: 0xf, ..REQ }, 50, &[0xf0]);
    check(Req { rnr_retry_count: 7, ..REQ }, 50, &[7]);
    check(Req { max_cm_retries: 0xf, ..REQ }, 51, &[0xf0]);
    check(Req { has_srq: true, ..REQ }, 51, &[8]);
    check(Req { private: [7; 92], ..REQ }, 140, &[7; 92]);
    let xrc = Message::Req(Req { service_type: TransportService::Extended(1), ..REQ });
    let bytes = xrc.bytes(0);
    assert_eq!((bytes[24 + 43], bytes[24 + 51]), (6, 1));
    assert_eq!(Message::read(&bytes), Ok((0, xrc)));
}

#[test]
fn path_of_req_has_the_layout_of_the_specification() {
    let check = |path: PrimaryPath, at: usize, field: &[u8]| check(Message::Req(Req { path, ..REQ }), at, field);
    check(PrimaryPath { local: Gid([7; 16]), ..REQ.path }, 56, &[7; 16]);
    check(PrimaryPath { remote: Gid([7; 16]), ..REQ.path }, 72, &[7; 16]);
    check(PrimaryPath { flow_label: 0x000f_1234, ..REQ.path }, 88, &[0xf1, 0x23, 0x40]);
    check(PrimaryPath { packet_rate: 0x3f, ..REQ.path }, 91, &[0x3f]);
    check(PrimaryPath { traffic_class: 0xff, ..REQ.path }, 92, &[0xff]);
    check(PrimaryPath { hop_limit: 0xff, ..REQ.path }, 93, &[0xff]);
    check(PrimaryPath { service_level: 0xf, ..REQ.path }, 94, &[0xf0]);
    check(PrimaryPath { is_subnet_local: true, ..REQ.path }, 94, &[8]);
    check(PrimaryPath { ack_timeout: 0x1f, ..REQ.path }, 95, &[0xf8]);
}

#[test]
fn rep_has_the_layout_of_the_specification() {
    let check = |rep: Rep, at: usize, field: &[u8]| check(Message::Rep(rep), at, field);
    check(Rep { ids: Ids { local: 0x0102_0304, remote: 0x0506_0708 }, ..REP }, 0, &[1, 2, 3, 4, 5, 6, 7, 8]);
    check(Rep { ece: Ece { vendor: 0x0001_0203, options: 9 }, ..REP }, 15, &[1, 0, 0, 0, 2, 0, 0, 0, 3]);
    check(Rep { qkey: 0x0102_0304, ..REP }, 8, &[1, 2, 3, 4]);
    check(Rep { qp_number: 0x0001_0203, ..REP }, 12, &[1, 2, 3]);
    check(Rep { starting_psn: 0x0001_0203, ..REP }, 20, &[1, 2, 3]);
    check(Rep { responder_resources: 0xff, ..REP }, 24, &[0xff]);
    check(Rep { initiator_depth: 0xff, ..REP }, 25, &[0xff]);
    check(Rep { ack_delay: 0x1f, ..REP }, 26, &[0xf8]);
    check(Rep { failover: 3, ..REP }, 26, &[6]);
    check(Rep { has_flow_control: true, ..REP }, 26, &[1]);
    check(Rep { rnr_retry_count: 7, ..REP }, 27, &[0xe0]);
    check(Rep { has_srq: true, ..REP }, 27, &[0x10]);
    check(Rep { guid: 0x0102_0304_0506_0708, ..REP }, 28, &[1, 2, 3, 4, 5, 6, 7, 8]);
    check(Rep { private: [7; 196], ..REP }, 36, &[7; 196]);
}

#[test]
fn rejections_and_short_messages_have_the_layout_of_the_specification() {
    let ids = Ids { local: 0x0102_0304, remote: 0x0506_0708 };
    for message in [
        Message::Rej(Rej { ids, ..REJ }),
        Message::Mra(Mra { ids, ..MRA }),
        Message::Rtu(Rtu { ids, ..RTU }),
        Message::Dreq(Dreq { ids, ..DREQ }),
        Message::Drep(Drep { ids, ..DREP }),
    ] {
        check(message, 0, &[1, 2, 3, 4, 5, 6, 7, 8]);
    }
    for (subject, byte) in [(Subject::Req, 0), (Subject::Rep, 0x40), (Subject::Other, 0x80)] {
        check(Message::Rej(Rej { subject, ..REJ }), 8, &[byte]);
        check(Message::Mra(Mra { subject, ..MRA }), 8, &[byte]);
    }
    let information = Information::new(72, [7; 72]).unwrap();
    check(Message::Rej(Rej { information, ..REJ }), 9, &[&[144, 0, 0][..], &[7; 72]].concat());
    check(Message::Rej(Rej { reason: 0x0102, ..REJ }), 10, &[1, 2]);
    check(Message::Rej(Rej { private: [7; 148], ..REJ }), 84, &[7; 148]);
    check(Message::Mra(Mra { timeout: 0x1f, ..MRA }), 9, &[0xf8]);
    check(Message::Mra(Mra { private: [7; 222], ..MRA }), 10, &[7; 222]);
    check(Message::Rtu(Rtu { private: [7; 224], ..RTU }), 8, &[7; 224]);
    check(Message::Dreq(Dreq { remote_qp_number: 0x0001_0203, ..DREQ }), 8, &[1, 2, 3]);
    check(Message::Dreq(Dreq { private: [7; 220], ..DREQ }), 12, &[7; 220]);
    check(Message::Drep(Drep { private: [7; 224], ..DREP }), 8, &[7; 224]);
}

#[test]
fn sidr_has_the_layout_of_the_specification() {
    check(Message::SidrReq(SidrReq { request_id: 0x0102_0304, ..SIDR_REQ }), 0, &[1, 2, 3, 4]);
    check(Message::SidrReq(SidrReq { partition: 0x0102, ..SIDR_REQ }), 4, &[1, 2]);
    check(Message::SidrReq(SidrReq { service: 0x0102_0304_0506_0708, ..SIDR_REQ }), 8, &[1, 2, 3, 4, 5, 6, 7, 8]);
    check(Message::SidrReq(SidrReq { private: [7; 216], ..SIDR_REQ }), 16, &[7; 216]);
    let check = |rep: SidrRep, at: usize, field: &[u8]| check(Message::SidrRep(rep), at, field);
    check(SidrRep { request_id: 0x0102_0304, ..SIDR_REP }, 0, &[1, 2, 3, 4]);
    check(SidrRep { status: 0xff, ..SIDR_REP }, 4, &[0xff]);
    check(SidrRep { ece: Ece { vendor: 0x0001_0203, options: 9 }, ..SIDR_REP }, 6, &[1, 2, 0, 0, 0, 3]);
    check(SidrRep { qp_number: 0x0001_0203, ..SIDR_REP }, 8, &[1, 2, 3]);
    check(SidrRep { service: 0x0102_0304_0506_0708, ..SIDR_REP }, 12, &[1, 2, 3, 4, 5, 6, 7, 8]);
    check(SidrRep { qkey: 0x0102_0304, ..SIDR_REP }, 20, &[1, 2, 3, 4]);
    check(SidrRep { private: [7; 136], ..SIDR_REP }, 96, &[7; 136]);
    let information = Information::new(72, [7; 72]).unwrap();
    let message = Message::SidrRep(SidrRep { information, ..SIDR_REP });
    let bytes = message.bytes(0);
    assert_eq!((bytes[24 + 5], &bytes[24 + 24..24 + 96]), (72, &[7; 72][..]));
    assert_eq!(Message::read(&bytes), Ok((0, message)));
}

#[test]
fn messages_have_the_attributes_of_the_specification() {
    for (attribute, message) in [
        (0x10, Message::Req(REQ)),
        (0x11, Message::Mra(MRA)),
        (0x12, Message::Rej(REJ)),
        (0x13, Message::Rep(REP)),
        (0x14, Message::Rtu(RTU)),
        (0x15, Message::Dreq(DREQ)),
        (0x16, Message::Drep(DREP)),
        (0x17, Message::SidrReq(SIDR_REQ)),
        (0x18, Message::SidrRep(SIDR_REP)),
    ] {
        let bytes = message.bytes(0x0102);
        assert_eq!(bytes[..24], [1, 7, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, attribute, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Message::read(&bytes), Ok((0x0102, message)));
    }
}

#[test]
fn options_of_ece_are_in_the_attribute_modifier() {
    let ece = Ece { vendor: 0, options: 0x0102_0304 };
    for message in [
        Message::Req(Req { ece, ..REQ }),
        Message::Rep(Rep { ece, ..REP }),
        Message::SidrRep(SidrRep { ece, ..SIDR_REP }),
    ] {
        assert_eq!(message.bytes(0)[20..24], [1, 2, 3, 4]);
    }
}

#[test]
fn unknown_attributes_are_refused() {
    let mut bytes = Message::Req(REQ).bytes(0);
    for attribute in (0..0x10).chain(0x19..=u16::MAX) {
        bytes[16..18].copy_from_slice(&attribute.to_be_bytes());
        assert_eq!(Message::read(&bytes), Err(Malformed("a MAD has an unknown attribute")), "{attribute:#x}");
    }
}

#[test]
fn additional_information_beyond_its_field_is_refused() {
    let error = Err(Malformed("the additional information is longer than its field"));
    for (message, at, byte) in [(Message::Rej(REJ), 9, 73 << 1), (Message::SidrRep(SIDR_REP), 5, 73)] {
        let mut bytes = message.bytes(0);
        bytes[24 + at] = byte;
        assert_eq!(Message::read(&bytes), error);
    }
}

#[test]
fn malformed_mad_is_refused() {
    let bytes = Message::Rtu(RTU).bytes(0);
    assert_eq!(Message::read(&bytes[..255]), Err(Malformed("a MAD does not have 256 bytes")));
}

#[test]
fn private_data_is_padded_up_to_its_limit() {
    assert_eq!(padded::<4>(&[1, 2]), Some([1, 2, 0, 0]));
    assert_eq!(padded::<4>(&[1, 2, 3, 4]), Some([1, 2, 3, 4]));
    assert_eq!(padded::<4>(&[1, 2, 3, 4, 5]), None);
}

#[test]
fn service_ids_have_the_port_space_and_the_port() {
    for (id, space, port) in [
        (0x0000_0000_0106_1234, rdma_port_space::RDMA_PS_TCP, 0x1234),
        (0x0000_0000_0111_ffff, rdma_port_space::RDMA_PS_UDP, 0xffff),
        (0x0000_0000_013f_0000, rdma_port_space::RDMA_PS_IB, 0),
        (0x0000_0000_0002_0001, rdma_port_space::RDMA_PS_IPOIB, 1),
    ] {
        assert_eq!(service_id(space, port), id);
        assert_eq!(service_of(id), Some((space, port)));
    }
    for id in [0, 0x0107_0000, 0x0001_0000_0106_1234, 0x8000_0000_0106_1234, u64::MAX] {
        assert_eq!(service_of(id), None, "{id:#x}");
    }
}

#[test]
fn addresses_have_the_layout_of_the_kernel() {
    let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let header = AddressHeader { source_port: 0x0102, addresses: Addresses::V4 { source, destination } };
    let private: [u8; 92] = header.before(b"data").unwrap();
    assert_eq!(private[..4], [0, 0x40, 1, 2]);
    assert_eq!(private[4..20], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1]);
    assert_eq!(private[20..36], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
    assert_eq!(&private[36..41], b"data\0");
    assert_eq!(AddressHeader::read(&private), Ok((header, &private[36..])));
    let (source, destination) = (Ipv6Addr::from([1; 16]), Ipv6Addr::from([2; 16]));
    let header = AddressHeader { source_port: 0x0102, addresses: Addresses::V6 { source, destination } };
    let private: [u8; 216] = header.before(&[3; 180]).unwrap();
    assert_eq!(private[..4], [0, 0x60, 1, 2]);
    assert_eq!(private[4..], [&[1; 16][..], &[2; 16], &[3; 180]].concat());
    assert_eq!(AddressHeader::read(&private), Ok((header, &[3; 180][..])));
    assert_eq!(header.before::<216>(&[3; 181]), None);
    assert_eq!(header.before::<92>(&[3; 57]), None);
    assert!(header.before::<92>(&[3; 56]).is_some());
}

#[test]
fn malformed_addresses_are_refused() {
    let private = |version: u8, ip_version: u8| [&[version, ip_version][..], &[0; 90]].concat();
    let error = |private: &[u8]| AddressHeader::read(private).expect_err("malformed addresses");
    let short = Malformed("the private data is shorter than its addresses");
    for length in 0..36 {
        assert_eq!(error(&private(0, 0x40)[..length]), short, "{length}");
    }
    assert_eq!(error(&private(1, 0x40)), Malformed("the addresses of the private data have an unknown version"));
    for ip_version in (0..16).filter(|version| ![4, 6].contains(version)) {
        let error = error(&private(0, ip_version << 4));
        assert_eq!(error, Malformed("the private data has an unknown version of IP"), "{ip_version}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 256 }, ..Default::default() })]

    #[test]
    fn accepted_messages_are_written_again(attribute in 0x0f..0x1b_u8, body in vec(any::<u8>(), 232), modifier: [u8; 4]) {
        let start = [1, 7, 2, 3, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, attribute, 0, 0];
        let bytes = [&start[..], &modifier, &body].concat();
        match Message::read(&bytes) {
            Ok((transaction, message)) => {
                prop_assert_eq!(transaction, 0x0102_0304_0506_0708);
                let again = message.bytes(transaction);
                prop_assert_eq!(&again[..20], &bytes[..20]);
                prop_assert_eq!(Message::read(&again), Ok((transaction, message)));
            }
            Err(_) => prop_assert!(![0x10, 0x11, 0x13, 0x14, 0x15, 0x16, 0x17].contains(&attribute)),
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(mut bytes in vec(any::<u8>(), 0..300), has_start: bool) {
        let start = [1, 7, 2, 3];
        if let Some(first) = bytes.get_mut(..4).filter(|_| has_start) {
            first.copy_from_slice(&start);
        }
        if Message::read(&bytes).is_ok() {
            prop_assert!(bytes.len() == 256 && bytes.starts_with(&start));
        }
    }

    #[test]
    fn accepted_addresses_are_written_again(ip_version: u8, mut private in vec(any::<u8>(), 0..92)) {
        if let Some(versions) = private.get_mut(..2) {
            versions.copy_from_slice(&[0, ip_version]);
        }
        match AddressHeader::read(&private) {
            Ok((header, data)) => {
                prop_assert_eq!(data, &private[36..]);
                let again: [u8; 92] = header.before(data).expect("data that was private data");
                prop_assert_eq!(AddressHeader::read(&again).map(|(header, _)| header), Ok(header));
                prop_assert_eq!(&again[36..private.len()], data);
            }
            Err(_) => prop_assert!(private.len() < 36 || ![4, 6].contains(&(ip_version >> 4))),
        }
    }
}
