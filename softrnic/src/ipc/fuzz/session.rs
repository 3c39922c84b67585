//! A session in which the other end writes arbitrary words anywhere in the shared memory.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};

use crate::fuzz::Input;
use crate::ipc::codec::{PART_WORDS, RESPONSE_WORDS, Words, decode_part, decode_response};
use crate::ipc::peers::Peers;
use crate::ipc::ring::{CONTROL, Consumer, Producer, Ring};
use crate::ipc::session::{DATA, RING, Role, SHARED, Session};
use crate::ipc::shared::Shared;
use crate::ipc::socket;
use crate::sys::descriptor::Descriptor;
use crate::sys::thread::Reactor;
use crate::wire::bytes::{Segment, read_bytes};
use crate::wire::packet::{MAX_NUMBER, MAX_PAYLOAD, Packet, Part, Payload, Response, ResponseKind};
use crate::wire::transport::{Carrier, Deliver};

thread_local! {
    /// The number of packets that this end has accepted.
    static ACCEPTED: Cell<u32> = const { Cell::new(0) };
}

static PEERS: Peers = Peers::new(&Checker, Reactor::of_process);

/// Checks the packets that this end has accepted, and responds to them.
#[derive(Debug)]
struct Checker;

impl Deliver for Checker {
    fn part(&self, part: &Part, payload: &[Segment], back: &Arc<dyn Carrier>) {
        let request = &part.request;
        assert!([part.number, request.source_number, request.psn].iter().all(|&number| number <= MAX_NUMBER));
        check_payload(payload, part.length);
        let kind = ResponseKind::Data { offset: 0, length: part.length };
        let (number, source_number) = (request.source_number, part.number);
        let response = Response { number, source_number, psn: request.psn, attempt: part.attempt, kind };
        // The other end may have no space, or report invalid values.
        let _ = back.put(&Packet::Response(response), Payload::Memory(payload));
    }

    fn response(&self, response: &Response, payload: &[Segment]) -> bool {
        assert!([response.number, response.source_number, response.psn].iter().all(|&number| number <= MAX_NUMBER));
        check_payload(payload, Packet::Response(*response).length());
        true
    }

    fn is_settled(&self, _: u32) -> bool {
        true
    }

    fn lost(&self, _: &Arc<dyn Carrier>) {}
}

/// Reads a payload, and checks that its length is `length`.
fn check_payload(payload: &[Segment], length: u32) {
    assert!(length <= MAX_PAYLOAD, "{length}");
    assert_eq!(payload.iter().map(Segment::len).sum::<usize>(), length as usize);
    read_bytes(payload, &mut vec![0; length as usize]).expect("mapped memory");
    ACCEPTED.set(ACCEPTED.get() + 1);
}

/// Both ends of a session.
struct Ends {
    session: Arc<Session>,
    shared: Arc<Shared>,
    /// The other end's producer and consumer, which follow the protocol.
    producer: Producer,
    consumer: Consumer,
    socket: Descriptor,
    /// The offset of the data that this end reads, and the number of words in each of the records there.
    data: usize,
    words: usize,
}

/// Runs a script. Its first byte selects the role, and steps of the other end follow. Returns whether packets were
/// accepted and none was malformed.
///
/// # Panics
///
/// Panics if a packet is accepted that exceeds its bounds.
pub fn session(input: &[u8]) -> bool {
    let mut input = Input(input);
    ACCEPTED.set(0);
    let mut ends = Ends::new(input.byte() % 2 == 1);
    while !input.is_empty() {
        ends.step(&mut input);
    }
    while ends.session.serve() {}
    let is_believed = ends.session.is_alive() && ACCEPTED.get() > 0;
    ends.session.end();
    is_believed
}

impl Ends {
    fn new(is_requester: bool) -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("two sockets");
        let [own, socket] = <[_; 2]>::from(pair).map(|socket| Descriptor::new(socket).expect("a free entry"));
        let shared = Arc::new(Shared::of_heap(SHARED));
        let parts = Ring::new(Arc::clone(&shared), 0, DATA, RING);
        let responses = Ring::new(Arc::clone(&shared), CONTROL, DATA + RING, RING);
        let (role, to_own, from_own, data, words, theirs) = if is_requester {
            (Role::Requester(1), responses, parts, DATA + RING, RESPONSE_WORDS, PART_WORDS)
        } else {
            (Role::Responder, parts, responses, DATA, PART_WORDS, RESPONSE_WORDS)
        };
        let session = Session::new(&PEERS, role, own, Arc::clone(&shared));
        let (producer, consumer) = (Producer::new(to_own), Consumer::new(from_own, theirs));
        Self { session, shared, producer, consumer, socket, data, words }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 8 {
            0 => {
                let offset = usize::from(input.byte()) % (2 * CONTROL / 8) * 8;
                self.shared.store(offset, input.word(), Ordering::Release);
            }
            1 => {
                // Stores words anywhere in the ring. They may wrap around at the end of the ring.
                let start = usize::from(input.short()) * 8;
                for index in 0..usize::from(input.byte() % 32) {
                    let offset = self.data + (start + index * 8) % RING;
                    self.shared.store(offset, input.word(), Ordering::Relaxed);
                }
            }
            2 => {
                // Stores a record with arbitrary content at the place where the next record must start.
                let words: Words = input.words::<PART_WORDS, PART_WORDS>();
                let length = u32::from(input.short()) % (MAX_PAYLOAD + 1);
                let payload = vec![input.byte(); length as usize];
                let _ = self.producer.put(&words[..self.words], Payload::Bytes(&payload), length, 0);
            }
            3 => {
                self.session.serve();
            }
            4 => self.put(input),
            5 => {
                self.session.park();
                if input.byte().is_multiple_of(2) {
                    self.session.unpark();
                }
            }
            6 => {
                // The other end reads the records of this end, which follow the protocol even after malformed input.
                if let Ok(Some(words)) = self.consumer.next() {
                    let length = match self.words {
                        PART_WORDS => decode_response(&words).map(|response| Packet::Response(response).length()),
                        _ => decode_part(&words).map(|part| part.length),
                    };
                    let _ = length.and_then(|length| self.consumer.take(length).map(drop));
                }
                self.consumer.free();
            }
            _ => {
                let length = input.byte();
                let bytes = input.bytes(length.into());
                let _ = rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
                socket::take_wakeups(&self.session.socket);
            }
        }
    }

    /// Sends a packet from this end. The other end reports how much space is free.
    fn put(&self, input: &mut Input<'_>) {
        let words: Words = input.words::<PART_WORDS, PART_WORDS>();
        let packet = match self.words {
            PART_WORDS => decode_response(&words).map(Packet::Response),
            _ => decode_part(&words).map(Packet::Part),
        };
        if let Ok(packet) = packet {
            let payload = vec![0; packet.length() as usize];
            let _ = self.session.put(&packet, Payload::Bytes(&payload));
        }
    }
}
