//! An iWARP peer that sends messages that no correct peer sends. softrnic refuses each with the code of the RFC.

use std::io::{Read, Write};
use std::net::TcpStream;

use sideway_tests::child::{self, Program, example};
use sideway_tests::programs::{LIMIT, port, succeeds};

use super::{is_soft, over_tcp};

const WRITE: u8 = 0;
const READ_REQUEST: u8 = 1;
const READ_RESPONSE: u8 = 2;
const SEND: u8 = 3;
const SEND_INVALIDATE: u8 = 4;
const TERMINATE: u8 = 7;
const IMMEDIATE: u8 = 8;
const ATOMIC_REQUEST: u8 = 10;

/// A start-up frame with these flags and revision, and a length of private data.
fn request(flags: u16, length: u16) -> Vec<u8> {
    [&b"MPA ID Req Frame"[..], &flags.to_be_bytes(), &length.to_be_bytes()].concat()
}

/// A request of revision 1 with CRC.
fn good_request() -> Vec<u8> {
    request(0x4001, 0)
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1)))
    })
}

/// A frame around a segment.
fn frame(segment: &[u8]) -> Vec<u8> {
    let mut frame = (segment.len() as u16).to_be_bytes().to_vec();
    frame.extend_from_slice(segment);
    frame.resize(frame.len().next_multiple_of(4), 0);
    let crc = crc(&frame);
    frame.extend_from_slice(&crc.to_le_bytes());
    frame
}

fn tagged(opcode: u8, stag: u32, offset: u64, payload: &[u8]) -> Vec<u8> {
    [&[0xc1, 0x40 | opcode][..], &stag.to_be_bytes(), &offset.to_be_bytes(), payload].concat()
}

/// An untagged segment: queue, MSN, offset, and whether it is the last one of its message.
fn untagged(opcode: u8, (queue, msn, offset): (u32, u32, u32), is_last: bool, payload: &[u8]) -> Vec<u8> {
    let numbers = [0, queue, msn, offset].map(u32::to_be_bytes).concat();
    [&[1 | u8::from(is_last) << 6, 0x40 | opcode][..], &numbers, payload].concat()
}

/// The fields of a Read Request.
fn read(stag: u32, offset: u64, length: u32) -> Vec<u8> {
    [&1_u32.to_be_bytes()[..], &[0; 8], &length.to_be_bytes(), &stag.to_be_bytes(), &offset.to_be_bytes()].concat()
}

/// Connects, and waits for the listener.
fn connect(server: &mut Program, port: u16) -> TcpStream {
    let mut socket = None;
    server.wait_until("the listener", |_| {
        socket = TcpStream::connect(("127.0.0.1", port)).ok();
        socket.is_some()
    });
    let socket = socket.expect("the server listens");
    socket.set_read_timeout(Some(LIMIT)).expect("the time is not zero");
    socket
}

/// Reads frames until the end of the connection. Returns the code of the Terminate message, if there was one.
fn code_until_end(socket: &mut TcpStream) -> Option<u16> {
    let mut bytes = Vec::new();
    // A reset also ends the connection.
    let _ = socket.read_to_end(&mut bytes);
    let mut rest = &bytes[..];
    while let Some((length, _)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length));
        let segment = rest.get(2..2 + length)?;
        if segment.get(1) == Some(&(0x40 | TERMINATE)) {
            return segment.get(18..20).map(|code| u16::from_be_bytes([code[0], code[1]]));
        }
        rest = rest.get((2 + length).next_multiple_of(4) + 4..)?;
    }
    None
}

#[test]
fn malformed_set_up_is_refused_and_the_listener_continues() {
    if !is_soft() {
        return;
    }
    let port = port();
    let start = |options: &str| {
        let mut command = over_tcp(example("rping"));
        command.args(["-p", &port.to_string()]).args(options.split_whitespace());
        command
    };
    let mut server = Program::start(start("-s -C 3"), LIMIT);
    let early = [good_request(), frame(&tagged(WRITE, 1, 0, b"early"))].concat();
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        b"MPA ID Rep Frame\x40\x01\0\0".to_vec(),
        request(0x4000, 0),
        request(0x4003, 0),
        request(0x4001, 513),
        request(0x4001, u16::MAX),
        [request(0x5002, 2), vec![0; 2]].concat(),
        early,
    ] {
        let mut socket = connect(&mut server, port);
        socket.write_all(&bytes).expect("it is connected");
        let _ = socket.set_read_timeout(Some(LIMIT));
        let mut reply = Vec::new();
        let _ = socket.read_to_end(&mut reply);
        assert!(reply.is_empty(), "{bytes:?}: {reply:?}");
    }
    // A connection with half a request and one without a request: neither delays others.
    let mut half = connect(&mut server, port);
    half.write_all(&good_request()[..10]).expect("it is connected");
    let _silent = connect(&mut server, port);
    succeeds(&child::run(start("-c -a 127.0.0.1 -C 3"), LIMIT), &[]);
    let ended = server.wait().unwrap_or_else(|| panic!("the server does not end:\n{}", server.said()));
    succeeds(&ended, &[]);
}

#[test]
fn malicious_messages_end_the_connection_with_the_code_of_the_rfc() {
    if !is_soft() {
        return;
    }
    let mut broken = frame(&untagged(SEND, (0, 1, 0), true, &[7; 16]));
    broken[20] ^= 1;
    let key = 0x1234_5678;
    let terminate = [&[0x10, 0, 0xe0, 0][..], &[0xff; 3]].concat();
    let attacks: [(&str, Vec<u8>, Option<u16>); 22] = [
        ("wrong CRC", broken, Some(0x2002)),
        ("no segment", frame(&[]), Some(0x2003)),
        ("segment shorter than a tagged header", frame(&tagged(WRITE, key, 0, &[])[..9]), Some(0x02ff)),
        ("segment shorter than an untagged header", frame(&untagged(SEND, (0, 1, 0), true, &[])[..17]), Some(0x02ff)),
        ("write to a foreign key", frame(&tagged(WRITE, key, 0, b"data")), Some(0x1100)),
        ("write that wraps", frame(&tagged(WRITE, key, u64::MAX - 1, b"data")), Some(0x1103)),
        ("write of key 0", frame(&tagged(WRITE, 0, 0, b"data")), Some(0x1100)),
        ("response without a request", frame(&tagged(READ_RESPONSE, key, 0, b"data")), Some(0x1100)),
        ("read of a foreign key", frame(&untagged(READ_REQUEST, (1, 1, 0), true, &read(key, 0, 8))), Some(0x0100)),
        ("read that wraps", frame(&untagged(READ_REQUEST, (1, 1, 0), true, &read(key, u64::MAX, 8))), Some(0x0100)),
        ("read with half of its fields", frame(&untagged(READ_REQUEST, (1, 1, 0), true, &[0; 20])), Some(0x02ff)),
        ("read with payload", frame(&untagged(READ_REQUEST, (1, 1, 0), true, &[0; 40])), Some(0x02ff)),
        ("atomic with half of its fields", frame(&untagged(ATOMIC_REQUEST, (1, 1, 0), true, &[0; 51])), Some(0x02ff)),
        ("immediate of 9 bytes", frame(&untagged(IMMEDIATE, (0, 1, 0), true, &[0; 9])), Some(0x02ff)),
        ("send longer than its receive", frame(&untagged(SEND, (0, 1, 0), true, &[7; 4000])), Some(0x1205)),
        ("send with an MSN ahead", frame(&untagged(SEND, (0, 2, 0), true, b"data")), Some(0x1203)),
        ("send with an offset ahead", frame(&untagged(SEND, (0, 1, 4), true, b"data")), Some(0x1204)),
        ("unknown queue", frame(&untagged(SEND, (7, 1, 0), true, b"data")), Some(0x1201)),
        ("unknown opcode", frame(&untagged(15, (0, 1, 0), true, b"data")), Some(0x0206)),
        ("invalidation of a foreign key", frame(&untagged(SEND_INVALIDATE, (0, 1, 0), true, &[7; 16])), Some(0x0109)),
        (
            "write inside of a send",
            [frame(&untagged(SEND, (0, 1, 0), false, &[7; 8])), frame(&tagged(WRITE, key, 0, b"data"))].concat(),
            Some(0x0206),
        ),
        ("truncated terminate", frame(&untagged(TERMINATE, (2, 1, 0), true, &terminate)), None),
    ];
    for (name, bytes, expected) in attacks {
        let port = port();
        let mut command = over_tcp(example("rping"));
        command.args(["-s", "-v", "-C", "1", "-p", &port.to_string()]);
        let mut server = Program::start(command, LIMIT);
        let mut socket = connect(&mut server, port);
        socket.write_all(&good_request()).expect("it is connected");
        let mut reply = [0; 20];
        socket.read_exact(&mut reply).expect("the server replies");
        assert_eq!(&reply[..16], b"MPA ID Rep Frame", "{name}");
        let private = usize::from(u16::from_be_bytes([reply[18], reply[19]]));
        socket.read_exact(&mut vec![0; private]).expect("the rest of the reply");
        socket.write_all(&bytes).expect("it is connected");
        assert_eq!(code_until_end(&mut socket), expected, "{name}");
        let ended = server.wait().unwrap_or_else(|| panic!("{name}: the server does not end:\n{}", server.said()));
        assert!(ended.status.code().is_some(), "{name}: {}\n{}", ended.status, ended.output);
        assert!(!ended.output.contains("ping data") && !ended.output.contains("panicked"), "{name}: {}", ended.output);
    }
}
