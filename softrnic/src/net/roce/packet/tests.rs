use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

const RANGE: Range = Range { address: 0x0102_0304_0506_0708, rkey: 0x090a_0b0c, length: 0x0d0e_0f10 };
const ADDRESS: [u8; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
const LENGTH: [u8; 4] = [13, 14, 15, 16];
const ACKNOWLEDGEMENT: Acknowledgement = Acknowledgement { syndrome: Syndrome::Ack, messages: 0x0002_0304 };
const AETH: [u8; 4] = [0x1f, 2, 3, 4];

fn packet(transport: Transport, body: Body) -> Packet {
    Packet {
        transport,
        body,
        is_solicited: false,
        asks: false,
        has_becn: false,
        partition: DEFAULT_PARTITION,
        destination: 0x0011_2233,
        psn: 0x0044_5566,
    }
}

fn written(packet: &Packet, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xee];
    packet.write(payload, &mut bytes);
    assert_eq!(bytes.remove(0), 0xee);
    bytes
}

/// Checks the bytes of a packet after its BTH, which has the opcode and no padding.
fn check(transport: Transport, body: Body, payload: &[u8], opcode: u8, parts: &[&[u8]]) {
    let packet = packet(transport, body);
    let bytes = written(&packet, payload);
    assert_eq!(bytes[..12], [opcode, 0x40, 0xff, 0xff, 0, 0x11, 0x22, 0x33, 0, 0x44, 0x55, 0x66], "{packet:?}");
    assert_eq!(bytes[12..], parts.concat(), "{packet:?}");
    assert_eq!(Packet::read(&bytes), Ok((packet, payload)));
}

#[test]
fn sends_have_the_headers_of_their_opcode() {
    let immediate = SendEnd::Immediate(u32::from_ne_bytes([1, 2, 3, 4]));
    let invalidate = SendEnd::Invalidate(0x0506_0708);
    for (opcode, place, end, header) in [
        (0x00, Place::First, SendEnd::Nothing, &[][..]),
        (0x01, Place::Middle, SendEnd::Nothing, &[]),
        (0x02, Place::Last, SendEnd::Nothing, &[]),
        (0x03, Place::Last, immediate, &[1, 2, 3, 4]),
        (0x04, Place::Only, SendEnd::Nothing, &[]),
        (0x05, Place::Only, immediate, &[1, 2, 3, 4]),
        (0x16, Place::Last, invalidate, &[5, 6, 7, 8]),
        (0x17, Place::Only, invalidate, &[5, 6, 7, 8]),
    ] {
        let body = Body::Send { place, end };
        check(Transport::Reliable, body, b"data", opcode, &[header, b"data"]);
        let extended = Transport::Extended { queue: 0x0077_8899 };
        check(extended, body, b"data", 0xa0 | opcode, &[&[0, 0x77, 0x88, 0x99], header, b"data"]);
        if opcode < 0x10 {
            check(Transport::Unreliable, body, b"data", 0x20 | opcode, &[header, b"data"]);
        }
        if matches!(opcode, 4 | 5) {
            let datagram = Transport::Datagram { key: 0x8001_0000, source: 0x0077_8899 };
            let deth = [0x80, 1, 0, 0, 0, 0x77, 0x88, 0x99];
            check(datagram, body, b"data", 0x60 | opcode, &[&deth, header, b"data"]);
        }
    }
}

#[test]
fn writes_have_the_headers_of_their_opcode() {
    for (opcode, place, has_immediate) in [
        (0x06, Place::First, false),
        (0x07, Place::Middle, false),
        (0x08, Place::Last, false),
        (0x09, Place::Last, true),
        (0x0a, Place::Only, false),
        (0x0b, Place::Only, true),
    ] {
        let body = Body::Write {
            place,
            range: place.is_first().then_some(RANGE),
            immediate: has_immediate.then_some(u32::from_ne_bytes([1, 2, 3, 4])),
        };
        let reth = [&ADDRESS[..], &LENGTH].concat();
        let reth = if place.is_first() { &reth[..] } else { &[] };
        let immediate: &[u8] = if has_immediate { &[1, 2, 3, 4] } else { &[] };
        check(Transport::Reliable, body, b"data", opcode, &[reth, immediate, b"data"]);
        check(Transport::Unreliable, body, b"data", 0x20 | opcode, &[reth, immediate, b"data"]);
        let extended = Transport::Extended { queue: 7 };
        check(extended, body, b"data", 0xa0 | opcode, &[&[0, 0, 0, 7], reth, immediate, b"data"]);
    }
}

#[test]
fn requests_of_memory_have_the_headers_of_their_opcode() {
    let atomic = |operands: [u64; 2]| [&ADDRESS[..], &operands.map(u64::to_be_bytes).concat()].concat();
    let (address, rkey) = (RANGE.address, RANGE.rkey);
    let range = [&ADDRESS[..], &LENGTH].concat();
    for (opcode, body, payload, headers) in [
        (0x0c, Body::Read(RANGE), &[][..], range.clone()),
        (0x13, Body::CompareSwap { address, rkey, compare: 8, swap: 9 }, &[], atomic([9, 8])),
        (0x14, Body::FetchAdd { address, rkey, add: 9 }, &[], atomic([9, 0])),
        (0x1c, Body::Flush { range: RANGE, placement: 2, level: 1 }, &[], [&[0, 0, 0, 0x12], &range[..]].concat()),
        (0x1d, Body::AtomicWrite(RANGE), b"8 bytes.", range.clone()),
    ] {
        check(Transport::Reliable, body, payload, opcode, &[&headers, payload]);
        let extended = Transport::Extended { queue: 7 };
        check(extended, body, payload, 0xa0 | opcode, &[&[0, 0, 0, 7], &headers, payload]);
    }
}

#[test]
fn responses_have_the_headers_of_their_opcode() {
    let response = |place, acknowledgement| Body::ReadResponse { place, acknowledgement };
    let atomic = Body::AtomicAcknowledge { acknowledgement: ACKNOWLEDGEMENT, original: 9 };
    for (opcode, body, payload, headers) in [
        (0x0d, response(Place::First, Some(ACKNOWLEDGEMENT)), &b"data"[..], &AETH[..]),
        (0x0e, response(Place::Middle, None), b"data", &[]),
        (0x0f, response(Place::Last, Some(ACKNOWLEDGEMENT)), b"data", &AETH),
        (0x10, response(Place::Only, Some(ACKNOWLEDGEMENT)), b"data", &AETH),
        (0x11, Body::Acknowledge(ACKNOWLEDGEMENT), &[], &AETH),
        (0x12, atomic, &[], &[0x1f, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 9]),
    ] {
        check(Transport::Reliable, body, payload, opcode, &[headers, payload]);
        check(Transport::ExtendedResponse, body, payload, 0xa0 | opcode, &[headers, payload]);
    }
}

#[test]
fn syndromes_have_their_codes() {
    for (code, syndrome) in [
        (0x1f, Syndrome::Ack),
        (0x20, Syndrome::NotReady(0)),
        (0x3f, Syndrome::NotReady(31)),
        (0x60, Syndrome::Nak(Nak::Sequence)),
        (0x61, Syndrome::Nak(Nak::InvalidRequest)),
        (0x62, Syndrome::Nak(Nak::RemoteAccess)),
        (0x63, Syndrome::Nak(Nak::RemoteOperation)),
        (0x64, Syndrome::Nak(Nak::InvalidDatagram)),
    ] {
        let body = Body::Acknowledge(Acknowledgement { syndrome, messages: 1 });
        check(Transport::Reliable, body, &[], 0x11, &[&[code, 0, 0, 1]]);
    }
}

#[test]
fn bits_of_the_bth_are_kept_and_reserved_ones_are_ignored() {
    let body = Body::Send { place: Place::Only, end: SendEnd::Nothing };
    let sent = Packet { is_solicited: true, asks: true, has_becn: true, ..packet(Transport::Reliable, body) };
    let mut bytes = written(&sent, b"data!");
    assert_eq!(bytes[..12], [4, 0xf0, 0xff, 0xff, 0x40, 0x11, 0x22, 0x33, 0x80, 0x44, 0x55, 0x66]);
    assert_eq!(&bytes[12..], b"data!\0\0\0");
    // MigReq, FECN, and the reserved bits.
    bytes[1] ^= 0x40;
    bytes[4] |= 0xbf;
    bytes[8] |= 0x7f;
    assert_eq!(Packet::read(&bytes), Ok((sent, &b"data!"[..])));
}

/// A ConnectX-4 Lx sent it, except that MigReq is set here.
#[test]
fn congestion_notification_is_that_of_hardware() {
    let mut packet = packet(Transport::Congestion, Body::Congestion);
    (packet.has_becn, packet.destination, packet.psn) = (true, 0x118, 0);
    let bytes = written(&packet, &[]);
    assert_eq!(bytes[..12], [0x81, 0x40, 0xff, 0xff, 0x40, 0, 1, 0x18, 0, 0, 0, 0]);
    assert_eq!(bytes[12..], [0; 16]);
    assert_eq!(Packet::read(&bytes), Ok((packet, &[][..])));
}

/// Returns the error of a packet with this opcode and these bytes after its BTH.
fn error(opcode: u8, flags: u8, rest: &[u8]) -> Malformed {
    let bytes = [&[opcode, flags, 0xff, 0xff, 0, 0, 0, 7, 0, 0, 0, 0], rest].concat();
    Packet::read(&bytes).expect_err("a malformed packet")
}

#[test]
fn packet_shorter_than_its_headers_is_refused() {
    for length in 0..12 {
        assert_eq!(Packet::read(&[4; 12][..length]), Err(Malformed::SHORT));
    }
    for (opcode, headers) in [
        (0x05, 4),
        (0x06, 16),
        (0x0b, 20),
        (0x0c, 16),
        (0x0d, 4),
        (0x11, 4),
        (0x12, 12),
        (0x13, 28),
        (0x14, 28),
        (0x17, 4),
        (0x1c, 20),
        (0x1d, 16),
        (0x64, 8),
        (0xa4, 4),
        (0xab, 24),
    ] {
        for length in (0..headers).step_by(4) {
            assert_eq!(error(opcode, 0, &vec![0; length]), Malformed::SHORT, "{opcode:#x} {length}");
        }
    }
}

#[test]
fn unknown_opcodes_and_versions_are_refused() {
    let of_reliable = |opcode: u8| matches!(opcode, 0x00..=0x14 | 0x16 | 0x17 | 0x1c | 0x1d);
    let known = |opcode: u8| match opcode & 0xe0 {
        0x00 | 0xa0 => of_reliable(opcode & 0x1f),
        _ => matches!(opcode, 0x20..=0x2b | 0x64 | 0x65 | 0x81),
    };
    for opcode in 0..=255 {
        let bytes = [&[opcode, 0, 0xff, 0xff][..], &[0; 36]].concat();
        assert_eq!(Packet::read(&bytes) != Err(Malformed::OPCODE), known(opcode), "{opcode:#x}");
    }
    for version in 1..16 {
        assert_eq!(error(0x04, version, &[]), Malformed::VERSION);
    }
}

#[test]
fn padding_that_the_packet_does_not_have_is_refused() {
    for padding in 1..4 {
        assert_eq!(error(0x04, padding << 4, &[]), Malformed::PADDING);
        assert_eq!(error(0x11, padding << 4, &[0x1f, 0, 0, 0]), Malformed::PADDING);
        assert_eq!(error(0x04, 0, &[0; 4][..padding.into()]), Malformed::ALIGNMENT);
    }
}

#[test]
fn reserved_syndromes_are_refused() {
    for syndrome in (0x40..0x60).chain(0x65..=0xff) {
        assert_eq!(error(0x11, 0, &[syndrome, 0, 0, 0]), Malformed::SYNDROME, "{syndrome:#x}");
        assert_eq!(error(0x10, 0, &[syndrome, 0, 0, 0]), Malformed::SYNDROME, "{syndrome:#x}");
    }
}

#[test]
fn payload_that_the_operation_does_not_allow_is_refused() {
    for (opcode, headers) in [(0x0c, 16), (0x11, 4), (0x12, 12), (0x13, 28), (0x14, 28), (0x1c, 20)] {
        assert_eq!(error(opcode, 0, &vec![0; headers + 4]), Malformed::PAYLOAD, "{opcode:#x}");
        assert_eq!(error(opcode, 0x30, &vec![0; headers + 4]), Malformed::PAYLOAD, "{opcode:#x}");
    }
    for (padding, payload) in [(0, 0), (0, 4), (0x10, 8), (0, 12)] {
        assert_eq!(error(0x1d, padding, &vec![0; 16 + payload]), Malformed::PAYLOAD, "{payload}");
    }
    for (padding, length) in [(0, 0), (0, 12), (0, 20), (0x10, 16)] {
        assert_eq!(error(0x81, padding, &vec![0; length]), Malformed::PAYLOAD, "{length}");
    }
}

prop_compose! {
    fn any_range()(address: u64, rkey: u32, length: u32) -> Range {
        Range { address, rkey, length }
    }
}

fn any_place() -> impl Strategy<Value = Place> {
    any::<(bool, bool)>().prop_map(|(is_first, is_last)| Place::new(is_first, is_last))
}

fn any_acknowledgement() -> impl Strategy<Value = Acknowledgement> {
    let naks = [Nak::Sequence, Nak::InvalidRequest, Nak::RemoteAccess, Nak::RemoteOperation, Nak::InvalidDatagram];
    let syndrome = prop_oneof![
        Just(Syndrome::Ack),
        (0..32_u8).prop_map(Syndrome::NotReady),
        proptest::sample::select(naks.to_vec()).prop_map(Syndrome::Nak),
    ];
    (syndrome, 0..1_u32 << 24).prop_map(|(syndrome, messages)| Acknowledgement { syndrome, messages })
}

fn any_send(place: impl Strategy<Value = Place>, can_invalidate: bool) -> impl Strategy<Value = Body> {
    (place, any::<u32>(), 0..if can_invalidate { 3 } else { 2 }).prop_map(|(place, value, end)| {
        let end = match end {
            1 if place.is_last() => SendEnd::Immediate(value),
            2 if place.is_last() => SendEnd::Invalidate(value),
            _ => SendEnd::Nothing,
        };
        Body::Send { place, end }
    })
}

fn any_write() -> impl Strategy<Value = Body> {
    (any_place(), any_range(), option::of(any::<u32>())).prop_map(|(place, range, immediate)| Body::Write {
        place,
        range: place.is_first().then_some(range),
        immediate: immediate.filter(|_| place.is_last()),
    })
}

fn any_request() -> impl Strategy<Value = Body> {
    prop_oneof![
        any_send(any_place(), true),
        any_write(),
        any_range().prop_map(Body::Read),
        any_range().prop_map(Body::AtomicWrite),
        any::<(u64, u32, u64)>().prop_map(|(address, rkey, add)| Body::FetchAdd { address, rkey, add }),
        any::<(u64, u32, u64, u64)>().prop_map(|(address, rkey, compare, swap)| Body::CompareSwap {
            address,
            rkey,
            compare,
            swap
        }),
        (any_range(), 0..16_u8, 0..4_u8).prop_map(|(range, placement, level)| Body::Flush { range, placement, level }),
    ]
}

fn any_response() -> impl Strategy<Value = Body> {
    prop_oneof![
        (any_place(), any_acknowledgement()).prop_map(|(place, acknowledgement)| Body::ReadResponse {
            place,
            acknowledgement: (place != Place::Middle).then_some(acknowledgement),
        }),
        any_acknowledgement().prop_map(Body::Acknowledge),
        (any_acknowledgement(), any::<u64>())
            .prop_map(|(acknowledgement, original)| Body::AtomicAcknowledge { acknowledgement, original }),
    ]
}

fn any_transport() -> impl Strategy<Value = (Transport, Body)> {
    let datagram = (any::<u32>(), 0..1_u32 << 24).prop_map(|(key, source)| Transport::Datagram { key, source });
    let extended = (0..1_u32 << 24).prop_map(|queue| Transport::Extended { queue });
    prop_oneof![
        (Just(Transport::Reliable), prop_oneof![any_request(), any_response()]),
        (Just(Transport::Unreliable), prop_oneof![any_send(any_place(), false), any_write()]),
        (datagram, any_send(Just(Place::Only), false)),
        (extended, any_request()),
        (Just(Transport::ExtendedResponse), any_response()),
        Just((Transport::Congestion, Body::Congestion)),
    ]
}

prop_compose! {
    fn any_packet()(
        (transport, body) in any_transport(), is_solicited: bool, asks: bool, has_becn: bool, partition: u16,
        destination in 0..1_u32 << 24, psn in 0..1_u32 << 24,
    ) -> Packet {
        Packet { transport, body, is_solicited, asks, has_becn, partition, destination, psn }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 512 }, ..Default::default() })]

    #[test]
    fn written_packets_are_read(packet in any_packet(), payload in vec(any::<u8>(), 0..70)) {
        let payload = match packet.body {
            Body::Send { .. } | Body::Write { .. } | Body::ReadResponse { .. } => &payload[..],
            Body::AtomicWrite(_) => b"8 bytes.",
            _ => &[],
        };
        let bytes = written(&packet, payload);
        prop_assert_eq!(Packet::read(&bytes), Ok((packet, payload)));
    }

    /// Half of the inputs have a valid length and version, so that some are accepted for each known opcode.
    #[test]
    fn accepted_bytes_are_written_again(mut bytes in vec(any::<u8>(), 0..80), is_cut: bool) {
        if is_cut {
            bytes.truncate(bytes.len() / 4 * 4);
            bytes.iter_mut().skip(1).take(1).for_each(|flags| *flags &= !0x0f);
        }
        if let Ok((packet, payload)) = Packet::read(&bytes) {
            let again = written(&packet, payload);
            prop_assert_eq!(again.len(), bytes.len());
            prop_assert_eq!(again[0], bytes[0]);
            prop_assert_eq!(Packet::read(&again), Ok((packet, payload)));
        }
    }
}
