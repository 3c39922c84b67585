//! Seeds of the fuzz corpus.

use super::world::{HERE, IOVA, PEER};
use crate::ipc::codec::{PART_WORDS, RESPONSE_WORDS, encode};
use crate::ipc::session::RING;
use crate::ipc::socket::handshake;
use crate::wire::bytes::Fault;
use crate::wire::message::{Refusal, Reply, Request};
use crate::wire::operation::{Operation, Service};
use crate::wire::packet::{Packet, Part, Response, ResponseKind};

/// The operations of the scripts, which `session` and `messages` define.
const STORE: u8 = 0;
const RECORD: u8 = 2;
const SERVE: u8 = 3;
const PART: u8 = 0;
const RESPONSE: u8 = 2;
const RECEIVE: u8 = 3;
const POST: u8 = 4;

fn words(packet: Packet, count: usize) -> Vec<u8> {
    let (words, _) = encode(&packet);
    words[..count].iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn part(operation: Operation, length: u32) -> Part {
    let request = Request {
        service: Service::ReliableConnection,
        operation,
        length: length.into(),
        is_solicited: false,
        psn: 0,
        packets: length.div_ceil(1024).max(1),
        source_number: PEER,
        source: HERE,
        destination: HERE,
        key: 0x1234,
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        service_level: 0,
        srq_number: 1,
    };
    Part { number: 1, request, offset: 0, length: if operation.has_data() { length } else { 0 }, attempt: 9 }
}

fn response(kind: ResponseKind) -> Response {
    Response { number: 1, source_number: PEER, psn: 0, attempt: 0, kind }
}

/// Returns the bytes with which the other end of a session writes a record.
fn record(packet: Packet) -> Vec<u8> {
    let length = (packet.length() as u16).to_le_bytes();
    [&[RECORD][..], &words(packet, PART_WORDS), &length, &[0x22]].concat()
}

/// Returns the bytes with which the other end writes a word of a control block.
fn store(index: u8, value: u64) -> Vec<u8> {
    [&[STORE, index][..], &value.to_le_bytes()].concat()
}

fn requests(part: Part) -> Vec<u8> {
    [&[PART][..], &words(Packet::Part(part), PART_WORDS)].concat()
}

fn responses(kind: ResponseKind) -> Vec<u8> {
    [&[RESPONSE][..], &words(Packet::Response(response(kind)), RESPONSE_WORDS)].concat()
}

fn of_service(service: Service, part: Part) -> Part {
    Part { request: Request { service, ..part.request }, ..part }
}

pub(crate) fn all() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    let send = part(Operation::Send, 100);
    let done = ResponseKind::Reply(Reply::Done { original: 5 });
    let receive = [RECEIVE, 0, 16];
    let post = |operation, length| [POST, operation, length, 0];
    let (address, granted, kept) = (IOVA, 1, 2);
    let long = part(Operation::Write { address, rkey: granted }, 20_000);
    let first = Part { length: 16_384, ..long };
    let rest = Part { offset: 16_384, length: 20_000 - 16_384, ..long };
    let valid = handshake(RING as u32);
    let mut other_version = valid;
    other_version[8] ^= 1;
    [
        ("handshake/good-memory", [&[0][..], &valid].concat()),
        ("handshake/bad-version", [&[0][..], &other_version].concat()),
        ("handshake/bad-long", [&[0][..], &valid, &[0]].concat()),
        ("handshake/bad-alone", [&[1][..], &valid].concat()),
        ("handshake/bad-size", [&[2][..], &valid].concat()),
        ("handshake/bad-unsealed", [&[3][..], &valid].concat()),
        ("handshake/bad-two", [&[4][..], &valid].concat()),
        ("session/good-part", [&[0][..], &record(Packet::Part(send)), &[SERVE]].concat()),
        ("session/good-answer", [&[1][..], &record(Packet::Response(response(done))), &[SERVE]].concat()),
        (
            "session/good-two",
            [&[0][..], &record(Packet::Part(send)), &record(Packet::Part(first)), &[5, 0, 6, 7, 1, 0]].concat(),
        ),
        ("session/bad-tail", [&[0][..], &store(0, 1 << 40), &[SERVE]].concat()),
        ("session/bad-half", [&[0][..], &record(Packet::Part(send)), &store(0, 64), &[SERVE]].concat()),
        // The length exceeds the limit of a part, although that many bytes follow.
        (
            "session/bad-length",
            [&[0][..], &record(Packet::Part(part(Operation::Send, 20_000))), &record(Packet::Part(first)), &[SERVE]]
                .concat(),
        ),
        ("session/bad-kind", [&[1][..], &record(Packet::Part(first)), &[SERVE]].concat()),
        ("messages/good-send", [&[0][..], &receive, &requests(send)].concat()),
        ("messages/good-write", [&[0][..], &requests(part(Operation::Write { address, rkey: granted }, 100))].concat()),
        ("messages/good-read", [&[0][..], &requests(part(Operation::Read { address, rkey: granted }, 100))].concat()),
        (
            "messages/good-atomic",
            [&[0][..], &requests(part(Operation::FetchAdd { address, rkey: granted, add: 1 }, 8))].concat(),
        ),
        ("messages/good-long", [&[0][..], &requests(first), &requests(rest)].concat()),
        (
            "messages/good-unreliable",
            [&[1][..], &receive, &requests(of_service(Service::UnreliableConnection, send))].concat(),
        ),
        (
            "messages/good-datagram",
            [&[2][..], &receive, &requests(of_service(Service::UnreliableDatagram, send))].concat(),
        ),
        ("messages/good-shared", [&[3][..], &receive, &requests(of_service(Service::XrcSend, send))].concat()),
        ("messages/good-answer", [&[0][..], &post(0, 100), &responses(done)].concat()),
        (
            "messages/good-data",
            [&[0][..], &post(4, 100), &responses(ResponseKind::Data { offset: 0, length: 100 }), &responses(done)]
                .concat(),
        ),
        ("messages/bad-key", [&[0][..], &requests(part(Operation::Read { address, rkey: kept }, 100))].concat()),
        (
            "messages/bad-bounds",
            [&[0][..], &requests(part(Operation::Write { address: address - 1, rkey: granted }, 100))].concat(),
        ),
        ("messages/bad-room", [&[0, RECEIVE, 1, 0][..], &requests(send)].concat()),
        ("messages/bad-order", [&[0][..], &requests(rest)].concat()),
        (
            "messages/bad-refusal",
            [
                &[0][..],
                &post(0, 100),
                &responses(ResponseKind::Reply(Reply::Refused(Refusal::AccessError(Fault::Key)))),
            ]
            .concat(),
        ),
    ]
    .into_iter()
}
