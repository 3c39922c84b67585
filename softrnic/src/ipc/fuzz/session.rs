//! A session whose other end writes what it likes, where it likes, into the memory that both share.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};

use crate::fuzz::Input;
use crate::ipc::codec::{ANSWER_WORDS, PART_WORDS, Words, decode_answer, decode_part};
use crate::ipc::peers::Peers;
use crate::ipc::ring::{CONTROL, Consumer, Producer, Ring};
use crate::ipc::session::{DATA, RING, Role, SHARED, Session};
use crate::ipc::shared::Shared;
use crate::ipc::socket;
use crate::sys::descriptor::Descriptor;
use crate::wire::bytes::{Segment, read_bytes};
use crate::wire::packet::{Answer, AnswerKind, MAX_NUMBER, MAX_PAYLOAD, Packet, Part, Payload};
use crate::wire::transport::{Carrier, Deliver};

thread_local! {
    /// Packets that were taken in.
    static TAKEN: Cell<u32> = const { Cell::new(0) };
}

static PEERS: Peers = Peers::new(&Checker);

/// Looks at what is believed, and answers it.
#[derive(Debug)]
struct Checker;

impl Deliver for Checker {
    fn part(&self, part: &Part, payload: &[Segment], back: &Arc<dyn Carrier>) {
        let request = &part.request;
        assert!([part.number, request.source_number, request.psn].iter().all(|&number| number <= MAX_NUMBER));
        look(payload, part.length);
        let kind = AnswerKind::Data { offset: 0, length: part.length };
        let (number, source_number) = (request.source_number, part.number);
        let answer = Answer { number, source_number, psn: request.psn, attempt: part.attempt, kind };
        // The other end may have no room, and may say nonsense of it.
        let _ = back.put(&Packet::Answer(answer), Payload::Memory(payload));
    }

    fn answer(&self, answer: &Answer, payload: &[Segment]) -> bool {
        assert!([answer.number, answer.source_number, answer.psn].iter().all(|&number| number <= MAX_NUMBER));
        look(payload, Packet::Answer(*answer).length());
        true
    }

    fn is_settled(&self, _: u32) -> bool {
        true
    }

    fn lost(&self, _: &Arc<dyn Carrier>) {}
}

/// Reads a payload, of which there is to be so much.
fn look(payload: &[Segment], length: u32) {
    assert!(length <= MAX_PAYLOAD, "{length}");
    assert_eq!(payload.iter().map(Segment::len).sum::<usize>(), length as usize);
    read_bytes(payload, &mut vec![0; length as usize]).expect("memory that is there");
    TAKEN.set(TAKEN.get() + 1);
}

/// The two ends.
struct Ends {
    session: Arc<Session>,
    shared: Arc<Shared>,
    /// The other end's, which keeps to the rules where it uses these.
    producer: Producer,
    consumer: Consumer,
    socket: Descriptor,
    /// Where the data begin that this end reads, and the words of a record there.
    data: usize,
    words: usize,
}

/// A session: a byte for its role, and then what its other end does, step by step. Whether something came, and all was believed.
///
/// # Panics
///
/// A packet is believed that is not within its bounds.
pub fn session(input: &[u8]) -> bool {
    let mut input = Input(input);
    TAKEN.set(0);
    let mut ends = Ends::new(input.byte() % 2 == 1);
    while !input.is_empty() {
        ends.step(&mut input);
    }
    while ends.session.serve() {}
    let is_believed = ends.session.is_alive() && TAKEN.get() > 0;
    ends.session.end();
    is_believed
}

impl Ends {
    fn new(is_requester: bool) -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("two sockets");
        let [own, socket] = <[_; 2]>::from(pair).map(|socket| Descriptor::new(socket).expect("room in the list"));
        let shared = Arc::new(Shared::of_heap(SHARED));
        let parts = Ring::new(Arc::clone(&shared), 0, DATA, RING);
        let answers = Ring::new(Arc::clone(&shared), CONTROL, DATA + RING, RING);
        let (role, to_own, from_own, data, words, theirs) = if is_requester {
            (Role::Requester(1), answers, parts, DATA + RING, ANSWER_WORDS, PART_WORDS)
        } else {
            (Role::Responder, parts, answers, DATA, PART_WORDS, ANSWER_WORDS)
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
                // Anywhere in the ring, and over its end.
                let start = usize::from(input.short()) * 8;
                for index in 0..usize::from(input.byte() % 32) {
                    let offset = self.data + (start + index * 8) % RING;
                    self.shared.store(offset, input.word(), Ordering::Relaxed);
                }
            }
            2 => {
                // A record that is where it should be, whatever is in it.
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
                // It reads what it was sent: this end keeps to the rules, whatever it has read.
                if let Ok(Some(words)) = self.consumer.next() {
                    let length = match self.words {
                        PART_WORDS => decode_answer(&words).map(|answer| Packet::Answer(answer).length()),
                        _ => decode_part(&words).map(|part| part.length),
                    };
                    let _ = length.and_then(|length| self.consumer.take(length).map(drop));
                }
                self.consumer.free();
            }
            _ => {
                let length = input.byte();
                let bell = input.bytes(length.into());
                let _ = rustix::net::send(&self.socket, bell, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
                socket::take_wakeups(&self.session.socket);
            }
        }
    }

    /// This end puts something in, and is told by the other how much room there is.
    fn put(&self, input: &mut Input<'_>) {
        let words: Words = input.words::<PART_WORDS, PART_WORDS>();
        let packet = match self.words {
            PART_WORDS => decode_answer(&words).map(Packet::Answer),
            _ => decode_part(&words).map(Packet::Part),
        };
        if let Ok(packet) = packet {
            let payload = vec![0; packet.length() as usize];
            let _ = self.session.put(&packet, Payload::Bytes(&payload));
        }
    }
}
