//! Rules that the simulator does not try, because its peers keep them.

use super::*;
use crate::memory::Pool;
use crate::proto::frame::LAST;
use crate::proto::{Agreement, FLOOR, Protocol, Settings};

const SEGMENT: usize = 512;

/// A connection, and what it has announced: the addresses count from 1.
struct Receiver {
    connection: Protocol,
    stock: Stock,
    announced: Vec<Buf>,
}

impl Receiver {
    fn new(version: u8) -> Self {
        let mut stock = Stock::new(Pool::on_heap(SEGMENT, 64 << 20));
        assert_eq!(stock.add_receives(40), 40);
        assert!(stock.ledger.open());
        let agreement = Agreement {
            version,
            segment: SEGMENT as u32,
            credits: 64,
            reads: 2,
            rendezvous: 1 << 20,
            message: 1 << 20,
        };
        let connection = Protocol::new(Settings::default(), agreement, FLOOR, 0);
        Self { connection, stock, announced: Vec::new() }
    }

    /// Passes a SEND of one frame to the connection, and runs a turn. Returns the requests.
    fn receive(&mut self, frame: Frame, payload: &[u8]) -> Result<Vec<Request>, Failure> {
        let mut send = self.stock.receives.pop().unwrap();
        let frame = Frame { length: payload.len() as u32, ..frame };
        send[..HEADER].copy_from_slice(&frame.emit());
        send[HEADER..HEADER + payload.len()].copy_from_slice(payload);
        self.connection.whole().received(send, HEADER + payload.len(), &mut self.stock)?;
        Ok(self.turn())
    }

    fn turn(&mut self) -> Vec<Request> {
        let announced = &mut self.announced;
        self.connection.whole().transmit(&mut self.stock, |buffer| {
            announced.push(buffer);
            Ok(Remote { address: announced.len() as u64, key: 1 })
        });
        self.connection.sent(1);
        std::mem::take(&mut self.connection.whole().requests).into()
    }

    /// Receives a message of 900 bytes in parts, and reads it.
    fn receive_parts(&mut self) -> Vec<Request> {
        let first = Frame { a: 900, ..Frame::new(Kind::DATA) };
        self.receive(first, &[1; 450]).unwrap();
        let requests = self.receive(Frame { flags: LAST, ..Frame::new(Kind::DATA) }, &[1; 450]).unwrap();
        self.connection.try_recv(&mut self.stock).unwrap();
        requests
    }
}

/// Returns the kinds of the frames in SENDs that follow no other frame.
fn kinds(requests: &[Request]) -> Vec<u8> {
    requests.iter().filter_map(|request| if let Request::Send(send) = request { Some(send[0]) } else { None }).collect()
}

#[test]
fn announced_buffers_have_nothing_of_earlier_messages() {
    let mut receiver = Receiver::new(2);
    let used: Vec<Buf> = (0..64).map_while(|_| receiver.stock.pool.alloc(4096)).collect();
    used.into_iter().for_each(|mut buffer| buffer.fill(7));
    assert_eq!(kinds(&receiver.receive_parts()), [Kind::BUFFERS.0]);
    assert_eq!(receiver.announced.len(), 2);
    assert!(receiver.announced.iter().all(|buffer| buffer.len() == 4096 && buffer.iter().all(|&byte| byte == 0)));
}

#[test]
fn lengths_without_bytes_take_no_memory() {
    let mut receiver = Receiver::new(2);
    receiver.receive(Frame { a: 1 << 18, ..Frame::new(Kind::DATA) }, b"x").unwrap();
    let announcement = Frame { flags: LAST, a: 1 << 18, ..Frame::new(Kind::RTS) };
    receiver.receive(announcement, &[0; 12]).unwrap();
    assert!(receiver.announced.is_empty());
    assert!(receiver.connection.try_recv(&mut receiver.stock).is_ok());
}

#[test]
fn buffers_that_are_too_short_are_withdrawn_and_longer_ones_follow() {
    let mut receiver = Receiver::new(2);
    receiver.receive_parts();
    let source = [0; 12];
    let requests = receiver.receive(Frame { flags: LAST, a: 5_000, ..Frame::new(Kind::RTS) }, &source).unwrap();
    let [Request::Read { token, .. }] = requests[..] else { panic!("{requests:?}") };
    let message = receiver.stock.pool.alloc(5_000).unwrap();
    receiver.connection.whole().read_done(token, message, true);
    assert!(kinds(&receiver.turn()).contains(&Kind::WITHDRAW.0));
    // The peer has used the first buffer.
    let requests = receiver.receive(Frame { a: 1, ..Frame::new(Kind::WITHDRAWN) }, b"").unwrap();
    assert!(matches!(requests[0], Request::Conceal(Remote { address: 2, .. })), "{requests:?}");
    assert_eq!(receiver.announced.iter().map(|buffer| buffer.len()).collect::<Vec<_>>(), [4096, 4096, 8192, 8192]);
    let written = receiver.receive(Frame { flags: LAST, a: 1_000, ..Frame::new(Kind::WRITTEN) }, b"").unwrap();
    assert!(matches!(written[0], Request::Land { remote: Remote { address: 1, .. }, .. }), "{written:?}");
}

/// The peer claims again and again to have used all buffers, and reports no message.
#[test]
fn buffers_that_a_peer_claims_to_have_used_are_limited() {
    let mut receiver = Receiver::new(2);
    for round in 0..100 {
        receiver.receive_parts();
        // Time passes without messages, so the buffers are withdrawn.
        (0..IDLE).for_each(|tick| receiver.connection.whole().tick(500 * u64::from(tick), &mut receiver.stock));
        let requests = receiver.turn();
        let withdrawal = requests.iter().find_map(|request| match request {
            Request::Send(send) if send[0] == Kind::WITHDRAW.0 => Frame::parse(send),
            _ => None,
        });
        let Some(withdrawal) = withdrawal else {
            assert!(round > 1 && receiver.stock.announced <= 2 * MOST);
            return;
        };
        receiver.receive(Frame { a: withdrawal.a, ..Frame::new(Kind::WITHDRAWN) }, b"").unwrap();
    }
    panic!("{} buffers are announced", receiver.stock.announced);
}

#[test]
fn buffers_return_when_the_peer_sends_no_more() {
    let mut receiver = Receiver::new(2);
    receiver.receive_parts();
    assert_eq!(receiver.stock.announced, 2);
    let requests = receiver.receive(Frame::new(Kind::FIN), b"").unwrap();
    assert_eq!(requests.iter().filter(|request| matches!(request, Request::Conceal(_))).count(), 2);
    assert_eq!(receiver.stock.announced, 0);
}

#[test]
fn short_message_does_not_keep_a_long_buffer() {
    let mut receiver = Receiver::new(2);
    receiver.receive_parts();
    receiver.receive(Frame { flags: LAST, a: 5, ..Frame::new(Kind::WRITTEN) }, b"").unwrap();
    let mut long = receiver.stock.pool.alloc(64 << 10).unwrap();
    long.truncate(5);
    long.copy_from_slice(b"short");
    receiver.connection.whole().landed(0, long, &mut receiver.stock);
    let Ok(super::super::Received::Message(message)) = receiver.connection.try_recv(&mut receiver.stock) else {
        panic!("the message is missing")
    };
    assert_eq!(&message[..], b"short");
    assert!(message.len() + message.room() < 16 << 10);
}

#[test]
fn frames_of_version_2_are_refused_by_version_1() {
    for kind in 10..14 {
        let mut receiver = Receiver::new(1);
        let frame = Frame { flags: crate::proto::frame::OPTIONAL, ..Frame::new(Kind(kind)) };
        receiver.receive(frame, b"").unwrap_err();
    }
}

#[test]
fn flags_fields_and_bytes_of_later_versions_are_ignored() {
    let mut receiver = Receiver::new(2);
    receiver.receive(Frame { flags: LAST | 0x40, a: 3, b: 7, ..Frame::new(Kind::DATA) }, b"abc").unwrap();
    let Ok(super::super::Received::Message(message)) = receiver.connection.try_recv(&mut receiver.stock) else {
        panic!("the message is missing")
    };
    assert_eq!(&message[..], b"abc");
    receiver.receive_parts();
    let written = Frame { flags: LAST | 0x20, a: 5, ..Frame::new(Kind::WRITTEN) };
    let requests = receiver.receive(written, b"number").unwrap();
    assert!(matches!(requests[0], Request::Land { length: 5, .. }), "{requests:?}");
    let announced = Frame { flags: LAST | 0x10, a: 600, b: 7, ..Frame::new(Kind::RTS) };
    let requests = receiver.receive(announced, &[1; 20]).unwrap();
    assert!(requests.iter().any(|request| matches!(request, Request::Read { .. })), "{requests:?}");
}
