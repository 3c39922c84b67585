//! Packets as words of shared memory. Another process writes the words, so each field is checked before use.

use crate::wire::address::Gid;
use crate::wire::bytes::Fault;
use crate::wire::limits;
use crate::wire::message::{Refusal, Reply, Request};
use crate::wire::operation::{Operation, Service};
use crate::wire::packet::{MAX_NUMBER, MAX_PAYLOAD, Packet, Part, Response, ResponseKind};

/// The number of words that precede the payload of a part.
pub(super) const PART_WORDS: usize = 16;
/// The number of words that precede the payload of a response.
pub(super) const RESPONSE_WORDS: usize = 8;

/// The words that precede a payload. A response uses only the first of them.
pub(super) type Words = [u64; PART_WORDS];

/// A protocol violation by the other process. It contains a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

const SOLICITED: u64 = 1;
const SERVICES: [Service; 5] = [
    Service::ReliableConnection,
    Service::UnreliableConnection,
    Service::UnreliableDatagram,
    Service::XrcSend,
    Service::XrcReceive,
];

/// Combines two halves into a word.
#[inline]
fn word(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[inline]
fn low(word: u64) -> u32 {
    word as u32
}

#[inline]
fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

#[inline]
fn byte(word: u64, index: u32) -> u8 {
    (word >> (8 * index)) as u8
}

/// Encodes a packet. Returns the words, and how many of them are used.
#[inline]
pub(super) fn encode(packet: &Packet) -> (Words, usize) {
    match packet {
        Packet::Part(part) => (encode_part(part), PART_WORDS),
        Packet::Response(response) => (encode_response(response), RESPONSE_WORDS),
    }
}

#[inline]
fn encode_part(part: &Part) -> Words {
    let request = &part.request;
    let (code, address, rkey, first, second) = match request.operation {
        Operation::Send => (0, 0, 0, 0, 0),
        Operation::SendImmediate { immediate } => (1, 0, 0, u64::from(immediate), 0),
        Operation::SendInvalidate { rkey } => (2, 0, rkey, 0, 0),
        Operation::Write { address, rkey } => (3, address, rkey, 0, 0),
        Operation::WriteImmediate { address, rkey, immediate } => (4, address, rkey, u64::from(immediate), 0),
        Operation::Read { address, rkey } => (5, address, rkey, 0, 0),
        Operation::CompareSwap { address, rkey, compare, swap } => (6, address, rkey, compare, swap),
        Operation::FetchAdd { address, rkey, add } => (7, address, rkey, add, 0),
        Operation::AtomicWrite { address, rkey } => (8, address, rkey, 0, 0),
        Operation::Flush { address, rkey, length, placement, level } => {
            (9, address, rkey, length, u64::from(placement) | u64::from(level) << 8)
        }
        // These operations are local and never sent.
        Operation::LocalInvalidate { rkey } => (10, 0, rkey, 0, 0),
        Operation::Bind => (11, 0, 0, 0, 0),
    };
    let service = match request.service {
        Service::ReliableConnection => 0,
        Service::UnreliableConnection => 1,
        Service::UnreliableDatagram => 2,
        Service::XrcSend => 3,
        Service::XrcReceive => 4,
        // iWARP has its own streams and never sends such a packet. The other process would reject it.
        Service::Iwarp => 5,
    };
    let flags = if request.is_solicited { SOLICITED } else { 0 };
    let [a, b] = halves(request.source);
    let [c, d] = halves(request.destination);
    let hops =
        u64::from(request.traffic_class) | u64::from(request.hop_limit) << 8 | u64::from(request.service_level) << 16;
    [
        code | service << 8 | flags << 16 | u64::from(part.number) << 32,
        request.length,
        word(request.psn, request.packets),
        word(request.source_number, request.key),
        a,
        b,
        c,
        d,
        hops | u64::from(request.flow_label) << 32,
        word(request.srq_number, part.length),
        part.offset,
        word(part.attempt, rkey),
        address,
        first,
        second,
        0,
    ]
}

#[inline]
pub(super) fn decode_part(words: &Words) -> Result<Part, Malformed> {
    let [start, length, numbers, peer, a, b, c, d, hops, sizes, offset, keys, address, first, second, _] = *words;
    let rkey = high(keys);
    // The conversion is lossless, because `narrow` has checked that the value fits.
    let immediate = || narrow(first).map(|first| first as u32);
    let operation = match byte(start, 0) {
        0 => Operation::Send,
        1 => Operation::SendImmediate { immediate: immediate()? },
        2 => Operation::SendInvalidate { rkey },
        3 => Operation::Write { address, rkey },
        4 => Operation::WriteImmediate { address, rkey, immediate: immediate()? },
        5 => Operation::Read { address, rkey },
        6 => Operation::CompareSwap { address, rkey, compare: first, swap: second },
        7 => Operation::FetchAdd { address, rkey, add: first },
        8 => Operation::AtomicWrite { address, rkey },
        9 => {
            let (placement, level) = (byte(second, 0), byte(second, 1));
            Operation::Flush { address, rkey, length: first, placement, level }
        }
        _ => return Err(Malformed("unknown operation")),
    };
    let service = *SERVICES.get(usize::from(byte(start, 1))).ok_or(Malformed("unknown service"))?;
    let request = Request {
        service,
        operation,
        length,
        is_solicited: u64::from(byte(start, 2)) & SOLICITED != 0,
        psn: number(low(numbers))?,
        packets: high(numbers),
        source_number: number(low(peer))?,
        source: gid(a, b),
        destination: gid(c, d),
        key: high(peer),
        traffic_class: byte(hops, 0),
        hop_limit: byte(hops, 1),
        flow_label: high(hops),
        service_level: byte(hops, 2),
        srq_number: low(sizes),
    };
    if length > u64::from(limits::MAX_MSG_SIZE) {
        return Err(Malformed("message too long"));
    }
    let part = Part { number: number(high(start))?, request, offset, length: high(sizes), attempt: low(keys) };
    let has_data = !operation.is_read_or_atomic() && !matches!(operation, Operation::Flush { .. });
    let most = if has_data { length } else { 0 };
    if part.length > MAX_PAYLOAD || offset.checked_add(u64::from(part.length)).is_none_or(|end| end > most) {
        return Err(Malformed("part outside of its message"));
    }
    Ok(part)
}

#[inline]
fn encode_response(response: &Response) -> Words {
    let (code, detail, length, value) = match response.kind {
        ResponseKind::Data { offset, length } => (0, 0, length, offset),
        ResponseKind::Reply(Reply::Done { original }) => (1, 0, 0, original),
        ResponseKind::Reply(Reply::NotReady { timer }) => (2, timer, 0, 0),
        ResponseKind::Reply(Reply::Refused(refusal)) => {
            let detail = match refusal {
                Refusal::InvalidRequest => 0,
                Refusal::AccessError(_) => 1,
                Refusal::OperationError => 2,
            };
            (3, detail, 0, 0)
        }
        ResponseKind::Reply(Reply::Silence) => (4, 0, 0, 0),
        ResponseKind::Reply(Reply::LocalFault | Reply::BadResponse) => (5, 0, 0, 0),
    };
    let mut words = [0; PART_WORDS];
    words[0] = code | u64::from(detail) << 8 | u64::from(response.number) << 32;
    words[1] = word(response.source_number, response.psn);
    words[2] = word(response.attempt, length);
    words[3] = value;
    words
}

/// Decodes a response from the first words.
#[inline]
pub(super) fn decode_response(words: &Words) -> Result<Response, Malformed> {
    let [start, numbers, sizes, value, ..] = *words;
    let length = high(sizes);
    let kind = match (byte(start, 0), byte(start, 1)) {
        (0, _) => ResponseKind::Data { offset: value, length },
        (1, _) => ResponseKind::Reply(Reply::Done { original: value }),
        (2, timer @ ..32) => ResponseKind::Reply(Reply::NotReady { timer }),
        (3, 0) => ResponseKind::Reply(Reply::Refused(Refusal::InvalidRequest)),
        (3, 1) => ResponseKind::Reply(Reply::Refused(Refusal::AccessError(Fault::Key))),
        (3, 2) => ResponseKind::Reply(Reply::Refused(Refusal::OperationError)),
        (4, _) => ResponseKind::Reply(Reply::Silence),
        (5, _) => ResponseKind::Reply(Reply::LocalFault),
        _ => return Err(Malformed("unknown response")),
    };
    match kind {
        ResponseKind::Data { offset, .. } => {
            let end = offset.checked_add(u64::from(length));
            if length > MAX_PAYLOAD || end.is_none_or(|end| end > u64::from(limits::MAX_MSG_SIZE)) {
                return Err(Malformed("data outside of its message"));
            }
        }
        ResponseKind::Reply(_) if length != 0 => return Err(Malformed("reply with data")),
        ResponseKind::Reply(_) => {}
    }
    Ok(Response {
        number: number(high(start))?,
        source_number: number(low(numbers))?,
        psn: number(high(numbers))?,
        attempt: low(sizes),
        kind,
    })
}

#[inline]
fn halves(gid: Gid) -> [u64; 2] {
    let all = u128::from_ne_bytes(gid.0);
    [all as u64, (all >> 64) as u64]
}

#[inline]
fn gid(low: u64, high: u64) -> Gid {
    Gid((u128::from(low) | u128::from(high) << 64).to_ne_bytes())
}

#[inline]
fn number(value: u32) -> Result<u32, Malformed> {
    if value <= MAX_NUMBER { Ok(value) } else { Err(Malformed("number above 24 bits")) }
}

#[inline]
fn narrow(value: u64) -> Result<u64, Malformed> {
    if value <= u64::from(u32::MAX) { Ok(value) } else { Err(Malformed("immediate above 32 bits")) }
}
