//! A queue pair whose peer is in another process and sends what it likes, in packets that can be read.
//!
//! A script cannot know the numbers and keys that chance has given: small ones in it stand for those.

use std::sync::{Arc, Mutex, Weak};

use rdma_mummy_sys::ibv_wc_status;

use super::world::{Own, PEER, World};
use crate::fuzz::Input;
use crate::ipc::codec::{ANSWER_WORDS, PART_WORDS, Words, decode_answer, decode_part};
use crate::qp::registry::ToQueuePairs;
use crate::sys::unpoisoned;
use crate::wire::bytes::{Segment, read_bytes};
use crate::wire::message::Reply;
use crate::wire::operation::{Operation, Service};
use crate::wire::packet::{Answer, AnswerKind, MAX_PAYLOAD, MULTICAST_NUMBER, Packet, Part, Payload};
use crate::wire::transport::{Carrier, Deliver, Stuck, Wake};

/// The way to the peer: what goes there, and how much still can.
#[derive(Debug, Default)]
pub(super) struct Way(Mutex<Sent>);

#[derive(Debug, Default)]
struct Sent {
    parts: Vec<Part>,
    answers: Vec<Answer>,
    /// What came with them.
    payload: Vec<u8>,
    room: usize,
    waiting: Vec<Weak<dyn Wake>>,
}

impl Carrier for Way {
    fn put(&self, packet: &Packet, payload: Payload<'_>) -> Result<(), Stuck> {
        let mut sent = unpoisoned(self.0.lock());
        if sent.room == 0 {
            return Err(Stuck::Full);
        }
        let mut bytes = vec![0; packet.length() as usize];
        match payload {
            Payload::Bytes(from) => bytes.copy_from_slice(from),
            Payload::Memory(from) => {
                assert_eq!(from.iter().map(Segment::len).sum::<usize>(), bytes.len());
                read_bytes(from, &mut bytes).map_err(|_| Stuck::Fault)?;
            }
        }
        sent.room -= 1;
        sent.payload.extend(bytes);
        match *packet {
            Packet::Part(part) => sent.parts.push(part),
            Packet::Answer(answer) => sent.answers.push(answer),
        }
        Ok(())
    }

    fn wake(&self, pair: Weak<dyn Wake>) {
        unpoisoned(self.0.lock()).waiting.push(pair);
    }

    fn taken(&self) -> u64 {
        0
    }
}

impl Way {
    pub(super) fn set_room(&self, packets: usize) {
        let waiting = {
            let mut sent = unpoisoned(self.0.lock());
            sent.room = packets;
            std::mem::take(&mut sent.waiting)
        };
        waiting.iter().filter_map(Weak::upgrade).for_each(|pair| pair.wake());
    }

    /// What one of the parts that were sent goes by: its packet number, and its attempt.
    fn sent(&self, index: usize) -> Option<(u32, u32)> {
        unpoisoned(self.0.lock()).parts.get(index).map(|part| (part.request.psn, part.attempt))
    }

    /// Whether anything that the peer asked for was done.
    pub(super) fn has_agreed(&self) -> bool {
        let is_done = |answer: &Answer| matches!(answer.kind, AnswerKind::Reply(Reply::Done { .. }));
        unpoisoned(self.0.lock()).answers.iter().any(is_done)
    }

    /// All bytes that have gone to the peer.
    fn payload(&self) -> Vec<u8> {
        std::mem::take(&mut unpoisoned(self.0.lock()).payload)
    }
}

/// Messages: a byte for the service, and then what the peer sends and this side does, step by step. Whether anything was done, and the
/// queue pair works still.
///
/// # Panics
///
/// Memory was written or read that was not granted, or a request has completed that was not posted, or twice.
pub fn messages(input: &[u8]) -> bool {
    let mut input = Input(input);
    let services =
        [Service::ReliableConnection, Service::UnreliableConnection, Service::UnreliableDatagram, Service::XrcReceive];
    let choice = input.byte();
    let mut world = World::new(services[usize::from(choice % 4)], choice & 4 != 0);
    while !input.is_empty() {
        step(&mut world, &mut input);
        world.poll();
    }
    let is_working = world.close();
    world.check(&world.way.payload());
    is_working
}

fn step(world: &mut World, input: &mut Input<'_>) {
    match input.byte() % 8 {
        0 | 1 => part(world, input),
        2 => answer(world, input),
        3 => world.receive(input.short()),
        4 => post(world, input),
        5 => world.way.set_room(usize::from(input.byte())),
        6 => world.pair.expired(),
        _ => {
            let way: Arc<dyn Carrier> = world.way.clone();
            ToQueuePairs.lost(&way);
            world.connect();
        }
    }
}

/// Small keys stand for those of the memory.
fn key(world: &World, key: u32) -> u32 {
    match key {
        1 => world.key(Own::Granted),
        2 => world.key(Own::Kept),
        3 => world.key(Own::Others),
        other => other,
    }
}

/// A word with its upper half changed.
fn with_high(word: u64, high: u32) -> u64 {
    word & u64::from(u32::MAX) | u64::from(high) << 32
}

fn part(world: &World, input: &mut Input<'_>) {
    let mut words: Words = input.words::<PART_WORDS, PART_WORDS>();
    let number = match (words[0] >> 32) as u32 {
        1 => world.pair.number(),
        2 => MULTICAST_NUMBER,
        other => other,
    };
    words[0] = with_high(words[0], number);
    words[11] = with_high(words[11], key(world, (words[11] >> 32) as u32));
    if words[9] as u32 == 1 {
        words[9] = words[9] & !u64::from(u32::MAX) | u64::from(world.shared_number());
    }
    let Ok(part) = decode_part(&words) else { return };
    let way: Arc<dyn Carrier> = world.way.clone();
    with_payload(part.length, |payload| ToQueuePairs.part(&part, payload, &way));
}

fn answer(world: &World, input: &mut Input<'_>) {
    let mut words: Words = input.words::<ANSWER_WORDS, PART_WORDS>();
    if (words[0] >> 32) as u32 == 1 {
        words[0] = with_high(words[0], world.pair.number());
    }
    // That of one of the first parts.
    if let Some((psn, attempt)) = world.way.sent(words[2] as u32 as usize) {
        words[1] = with_high(words[1], if words[1] >> 32 == 0 { psn } else { (words[1] >> 32) as u32 });
        words[2] = words[2] & !u64::from(u32::MAX) | u64::from(attempt);
    }
    let Ok(answer) = decode_answer(&words) else { return };
    let length = Packet::Answer(answer).length();
    with_payload(length, |payload| assert!(ToQueuePairs.answer(&answer, payload), "one thread has all queue pairs"));
}

/// So many bytes of the peer's, none of which is a secret.
fn with_payload(length: u32, call: impl FnOnce(&[Segment])) {
    assert!(length <= MAX_PAYLOAD, "{length}");
    let mut bytes = vec![0x11_u8; length as usize];
    // SAFETY: the bytes live until the end of this function, and nobody else uses them.
    let payload = unsafe { Segment::of_raw(bytes.as_mut_ptr(), bytes.len()) };
    call(&[payload]);
}

fn post(world: &mut World, input: &mut Input<'_>) {
    let (choice, length) = (input.byte(), input.short());
    let (address, rkey) = (0x1000, 7);
    let operation = match choice % 8 {
        0 => Operation::Send,
        1 => Operation::SendImmediate { immediate: 1 },
        2 => Operation::Write { address, rkey },
        3 => Operation::WriteImmediate { address, rkey, immediate: 2 },
        4 | 5 => Operation::Read { address, rkey },
        6 => Operation::FetchAdd { address, rkey, add: 1 },
        _ => Operation::CompareSwap { address, rkey, compare: 0, swap: 1 },
    };
    let length = if operation.is_atomic() { 8 } else { length };
    world.post(operation, length, PEER);
}

/// Whether a completion says that something was done.
pub(super) fn is_success(status: ibv_wc_status) -> bool {
    status == ibv_wc_status::IBV_WC_SUCCESS
}
