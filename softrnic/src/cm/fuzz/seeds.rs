//! Seeds of the fuzz corpus.

use std::net::SocketAddr;

use crate::cm::messages::{Kind, Message};

/// The operations of the scripts, which `connections` defines.
const PACKET: u8 = 0;
const TIME: u8 = 4;
const HANG_UP: u8 = 5;

/// The first byte of a script.
const LISTENER: u8 = 0;
const CONNECTING: u8 = 1;
const ACCEPTED: u8 = 4;
const CONNECTED: u8 = 5;
const DATAGRAM: u8 = 0x80;

fn packet(kind: Kind) -> Vec<u8> {
    let message = Message {
        qp_number: 0x123,
        psn: 0x456,
        qkey: 0x0123_4567,
        responder_resources: 4,
        initiator_depth: 4,
        retry_count: 7,
        rnr_retry_count: 7,
        from: SocketAddr::from(([127, 0, 0, 1], 4000)),
        // Port 1 is replaced by the port of the listener.
        to: SocketAddr::from(([127, 0, 0, 1], 1)),
        ..Message::new(kind)
    };
    let message = if kind.data_length() > 0 { message.with_data(b"private data") } else { Some(message) };
    let message = message.expect("the data fits");
    [&[PACKET][..], &message.encode()].concat()
}

pub(crate) fn all() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    let alone = |choice: u8, kind| [&[choice][..], &packet(kind)].concat();
    let mut spoiled = alone(LISTENER, Kind::Request);
    spoiled[2] ^= 1;
    [
        ("connections/good-request", alone(LISTENER, Kind::Request)),
        ("connections/good-lookup", alone(DATAGRAM | LISTENER, Kind::DatagramRequest)),
        ("connections/good-reply", alone(CONNECTING, Kind::Reply)),
        ("connections/good-answer", alone(DATAGRAM | CONNECTING, Kind::DatagramReply)),
        (
            "connections/good-ready",
            [alone(ACCEPTED, Kind::ReadyToUse), packet(Kind::Disconnect), vec![7, TIME]].concat(),
        ),
        ("connections/bad-reject", alone(CONNECTING, Kind::Reject)),
        ("connections/bad-kind", alone(CONNECTED, Kind::Request)),
        ("connections/bad-lookup", alone(LISTENER, Kind::DatagramRequest)),
        ("connections/bad-magic", spoiled),
        ("connections/bad-silence", vec![CONNECTING, TIME]),
        ("connections/bad-end", vec![ACCEPTED, HANG_UP]),
    ]
    .into_iter()
}
