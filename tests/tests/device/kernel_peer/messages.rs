//! Messages of every kind and size between softrnic and the kernel, in both directions, with the data checked.
//!
//! Both ends derive the same messages from a seed. The messages are posted in lists. The last message of each list
//! invalidates a key of the receiver, which then checks all data of the list and returns a credit for the next list.

use fastrand::Rng;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{CompletionRecord, WorkCompletionFlags, WorkCompletionStatus};
use sideway::ibverbs::memory_region::{OwnedMemoryRegion, RemoteKey};
use sideway::ibverbs::memory_window::{BindInformation, MemoryWindow, MemoryWindowType};
use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway::rdmacm::Listener;
use sideway_tests::connections::LONG;
use sideway_tests::loopback::{Give, Memory, Range};

use super::end::{End, connector, is_iwarp, is_soft, parameters};

/// The length of the memory whose bytes are sent and read.
const PATTERN: usize = 2 << 20;
/// The length of the memory to which messages are delivered, and the longest message.
const MEMORY: usize = 4 << 20;
const LONGEST: usize = 1 << 20;
/// The maximum number of messages in a list.
const LIST: usize = 48;
/// The bytes between two messages in the receiver's memory, which stay zero.
const GAP: usize = 8;
/// Shorter messages do not cross a page where they are sent, because siw mixes up their bytes.
const SHORT: usize = 64;
const PAGE: usize = 4096;
/// The numbers of requests that carry no message of a list.
const CREDIT: u64 = 1 << 32;
const BIND: u64 = 2 << 32;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Send,
    SendSolicited,
    SendInvalidate,
    Write,
    Read,
    // iWARP lacks these.
    SendImmediate,
    WriteImmediate,
    /// Adds 8 bytes of the pattern to zero.
    FetchAdd,
}

impl Kind {
    /// Whether the message completes a receive.
    fn is_received(self) -> bool {
        !matches!(self, Self::Write | Self::Read | Self::FetchAdd)
    }
}

/// A message: `from` is its place in the pattern, and `to` its place in the memory of the end that checks it.
#[derive(Clone, Copy, Debug)]
struct Message {
    kind: Kind,
    length: usize,
    from: usize,
    to: usize,
}

struct Lists {
    random: Rng,
    is_iwarp: bool,
}

impl Lists {
    fn new(end: &End) -> Self {
        Self { random: Rng::with_seed(1), is_iwarp: is_iwarp(end) }
    }

    /// Most messages are short. The lengths around those of a TCP segment, and around a page, occur often.
    fn length(&mut self) -> usize {
        match self.random.usize(..5000) {
            0 => LONGEST - self.random.usize(..2),
            1..50 => (64 << 10) - 1 + self.random.usize(..3),
            50..300 => 4095 + self.random.usize(..3),
            300..1500 => 1400 + self.random.usize(..64),
            1500..1700 => 0,
            1700..1900 => 1,
            _ => 1 + self.random.usize(..200),
        }
    }

    /// The next list.
    fn list(&mut self, remaining: usize) -> Vec<Message> {
        let (mut list, mut to) = (Vec::new(), 0);
        while list.len() < remaining.min(LIST) {
            let is_last = list.len() + 1 == remaining.min(LIST) || to > MEMORY - 2 * LONGEST - 4 * GAP;
            let kind = match self.random.usize(..if self.is_iwarp { 4 } else { 7 }) {
                _ if is_last => Kind::SendInvalidate,
                0 => Kind::Send,
                1 => Kind::SendSolicited,
                2 => Kind::Write,
                3 => Kind::Read,
                4 => Kind::SendImmediate,
                5 => Kind::WriteImmediate,
                _ => Kind::FetchAdd,
            };
            // siw responds to an empty read with as many bytes as to the read before.
            let mut length = self.length().max(usize::from(kind == Kind::Read));
            if kind == Kind::FetchAdd {
                length = 8;
                to = to.next_multiple_of(8);
            }
            let mut from = self.random.usize(..PATTERN - LONGEST);
            if length < SHORT {
                from -= (from % PAGE).saturating_sub(PAGE - SHORT);
            }
            list.push(Message { kind, length, from, to });
            to += length + GAP;
            if is_last {
                break;
            }
        }
        list
    }
}

/// The bytes that are sent. No two places within a few MiB have the same 8 bytes.
fn pattern() -> Vec<u8> {
    (0..PATTERN as u64 / 8).flat_map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect()
}

fn peer_rights() -> AccessFlags {
    AccessFlags::LocalWrite | AccessFlags::RemoteWrite | AccessFlags::RemoteRead
}

/// The memory of one end. Both ends have the same two regions.
struct Memories {
    pattern: Vec<u8>,
    source: Memory,
    target: Memory,
    buffer: Vec<u8>,
}

impl Memories {
    fn new(end: &End) -> Self {
        let pattern = pattern();
        let mut source = Memory::new(&end.pd, PATTERN, peer_rights());
        assert_eq!(source.addr() % PAGE as u64, 0, "the memory begins with a page");
        source.write(0, &pattern);
        let target = Memory::new(&end.pd, MEMORY, peer_rights() | bind_right(end));
        Self { pattern, source, target, buffer: vec![0; MEMORY] }
    }

    /// Checks the messages of a list that have arrived in this end's memory, and clears this memory.
    fn check(&mut self, list: &[Message], arrives: impl Fn(Kind) -> bool) {
        let Some(last) = list.last() else { return };
        let used = last.to + last.length + GAP;
        let buffer = &mut self.buffer[..used];
        self.target.read(0, buffer);
        for message in list {
            let Message { kind, length, from, to } = *message;
            let (found, gap) = buffer[to..to + length + GAP].split_at_mut(length);
            let is_same =
                if arrives(kind) { *found == self.pattern[from..from + length] } else { *found == *vec![0; length] };
            assert!(is_same && gap == [0; GAP], "the data of {message:?} is wrong");
        }
        buffer.fill(0);
        self.target.write(0, buffer);
    }
}

/// siw has no memory windows, and no atomics.
fn bind_right(end: &End) -> AccessFlags {
    if !is_iwarp(end) {
        AccessFlags::MemoryWindowBind | AccessFlags::RemoteAtomic
    } else if is_soft(end) {
        AccessFlags::MemoryWindowBind
    } else {
        AccessFlags::empty()
    }
}

/// A key that the peer can invalidate.
enum Invalidated {
    Window(MemoryWindow),
    Region(OwnedMemoryRegion),
}

impl Invalidated {
    fn new(end: &mut End, memory: &Memory) -> Self {
        if is_iwarp(end) && !is_soft(end) {
            return Self::Region(end.pd.reg_owned_mr(64, peer_rights()).expect("memory can be registered"));
        }
        let mut window = end.pd.alloc_mw(MemoryWindowType::Type2).expect("a window can be created");
        let key = window.rkey().inc_rkey();
        let part = BindInformation::new(memory.region(), memory.addr(), 64, AccessFlags::RemoteRead);
        let mut batch = end.qp.start_post_send();
        batch.construct_wr(BIND, WorkRequestFlags::Signaled).setup_bind_mw(&mut window, key, part);
        batch.post().unwrap_or_else(|error| panic!("{error}"));
        succeeded(&end.completions_until(|record| record.wr_id == BIND));
        window.set_rkey(key).expect("the key is the window's");
        Self::Window(window)
    }

    fn key(&self) -> RemoteKey {
        match self {
            Self::Window(window) => window.rkey(),
            Self::Region(region) => region.rkey(),
        }
    }
}

#[track_caller]
fn succeeded(records: &[CompletionRecord]) {
    let failed = records.iter().find(|record| record.status != WorkCompletionStatus::Success);
    assert!(failed.is_none(), "{failed:?}");
}

pub(super) fn receive_all(listener: &Listener, count: usize) {
    let request = listener.accept(Some(LONG)).unwrap_or_else(|error| panic!("{error}"));
    let mut end = End::of(request.identifier());
    let mut memories = Memories::new(&end);
    let (source, target) = (&memories.source, &memories.target);
    let places: Vec<u8> = [source, target]
        .into_iter()
        .flat_map(|memory| [memory.addr().to_be_bytes(), u64::from(u32::from(memory.rkey())).to_be_bytes()].concat())
        .collect();
    let mut control = Memory::new(&end.pd, 64, AccessFlags::LocalWrite);
    end.receive(CREDIT, &control, 0, 64);
    let mut parameter = parameters();
    let connection = request.accept(parameter.setup_private_data(&places)).unwrap_or_else(|error| panic!("{error}"));
    // The initiator must send first.
    succeeded(&end.completions_until(|record| record.wr_id == CREDIT));

    let (mut lists, mut received) = (Lists::new(&end), 0);
    while received < count {
        let list = lists.list(count - received);
        for (number, message) in list.iter().enumerate().filter(|(_, message)| message.kind.is_received()) {
            end.receive(number as u64, &memories.target, message.to, message.length);
        }
        let key = Invalidated::new(&mut end, &memories.target);
        control.write(0, &u32::from(key.key()).to_be_bytes());
        let mut batch = end.qp.start_post_send();
        batch.construct_wr(CREDIT, WorkRequestFlags::Signaled).setup_send().give(Range::of(&control, 0, 4));
        batch.post().unwrap_or_else(|error| panic!("{error}"));

        let last = list.len() as u64 - 1;
        let mut has_sent = false;
        let (mut has_received, mut records) = (false, Vec::new());
        while !has_sent || !has_received {
            records.extend(end.completions_until(|_| true));
            has_sent |= records.iter().any(|record| record.wr_id == CREDIT);
            has_received |= records.iter().any(|record| record.wr_id == last);
        }
        succeeded(&records);
        let mut records = records.iter().filter(|record| record.wr_id != CREDIT);
        for (number, message) in list.iter().enumerate().filter(|(_, message)| message.kind.is_received()) {
            let record = records.next().expect("each send completes a receive");
            assert_eq!((record.wr_id, record.byte_len as usize), (number as u64, message.length), "{message:?}");
            let has_invalidated = record.wc_flags.contains(WorkCompletionFlags::WithInvalidate);
            // libsiw leaves out the flag, and rdma_rxe sets another one.
            let expected = is_soft(&end) && message.kind == Kind::SendInvalidate;
            assert_eq!(has_invalidated, expected, "{message:?}");
            let has_data = matches!(message.kind, Kind::SendImmediate | Kind::WriteImmediate);
            assert_eq!(record.imm_data, has_data.then_some(message.from as u32), "{message:?}");
        }
        assert!(records.next().is_none());
        memories.check(&list, |kind| kind != Kind::Read);
        received += list.len();
    }
    connection.wait(Some(LONG)).unwrap_or_else(|error| panic!("{error}"));
}

pub(super) fn send_all(address: &str, count: usize) {
    let resolved = connector().resolve(address).unwrap_or_else(|error| panic!("{error}"));
    let mut end = End::of(resolved.identifier());
    let mut memories = Memories::new(&end);
    let control = Memory::new(&end.pd, 64, AccessFlags::LocalWrite);
    end.receive(CREDIT, &control, 0, 64);
    let connection = resolved.connect(&parameters()).unwrap_or_else(|error| panic!("{error}"));
    let words: Vec<u64> = connection.info().private_data()[..32]
        .chunks_exact(8)
        .map(|word| u64::from_be_bytes(word.try_into().expect("it has eight bytes")))
        .collect();
    let (source, target) = ((words[0], RemoteKey::from(words[1] as u32)), (words[2], RemoteKey::from(words[3] as u32)));
    let hello = CREDIT + 1;
    let mut batch = end.qp.start_post_send();
    batch.construct_wr(hello, WorkRequestFlags::Signaled).setup_send().give(Range::of(&control, 0, 0));
    batch.post().unwrap_or_else(|error| panic!("{error}"));

    let (mut lists, mut sent, mut has_credit) = (Lists::new(&end), 0, false);
    while sent < count {
        let list = lists.list(count - sent);
        if !has_credit {
            succeeded(&end.completions_until(|record| record.wr_id == CREDIT));
        }
        let mut key = [0; 4];
        control.read(0, &mut key);
        let key = RemoteKey::from(u32::from_be_bytes(key));
        end.receive(CREDIT, &control, 0, 64);

        let mut batch = end.qp.start_post_send();
        for (number, message) in list.iter().enumerate() {
            let Message { kind, length, from, to } = *message;
            let mut flags = WorkRequestFlags::Signaled;
            flags.set(WorkRequestFlags::Solicited, kind == Kind::SendSolicited);
            let request = batch.construct_wr(number as u64, flags);
            let range = Range::of(&memories.source, from, length);
            match kind {
                Kind::Send | Kind::SendSolicited => request.setup_send().give(range),
                Kind::SendInvalidate => request.setup_send_inv(key).give(range),
                Kind::SendImmediate => request.setup_send_imm(from as u32).give(range),
                Kind::Write => request.setup_write(target.1, target.0 + to as u64).give(range),
                Kind::WriteImmediate => {
                    request.setup_write_imm(target.1, target.0 + to as u64, from as u32).give(range)
                }
                Kind::FetchAdd => {
                    let word = memories.pattern[from..from + 8].try_into().expect("it has eight bytes");
                    let request =
                        request.setup_atomic_fetch_add(target.1, target.0 + to as u64, u64::from_ne_bytes(word));
                    request.give(Range::of(&memories.target, to, length));
                }
                Kind::Read => {
                    request.setup_read(source.1, source.0 + from as u64).give(Range::of(&memories.target, to, length))
                }
            }
        }
        batch.post().unwrap_or_else(|error| panic!("{error}"));
        let (mut numbers, count) = (Vec::new(), list.len() as u64);
        has_credit = false;
        while (numbers.len() as u64) < count {
            let records = end.completions_until(|_| true);
            succeeded(&records);
            // The credit may complete before a send if reads are in flight.
            has_credit |= records.iter().any(|record| record.wr_id == CREDIT);
            numbers.extend(records.iter().map(|record| record.wr_id).filter(|number| *number < count));
        }
        if is_iwarp(&end) && !is_soft(&end) {
            // siw completes a send before the reads that were posted earlier.
            numbers.sort_unstable();
        }
        assert!(numbers.iter().copied().eq(0..count), "{numbers:?}");
        memories.check(&list, |kind| kind == Kind::Read);
        sent += list.len();
    }
    let _ = connection.disconnect(Some(LONG)).unwrap_or_else(|error| panic!("{error}"));
}
