//! Simulates both ends of a connection, and a network between them that cuts, damages and resets the streams.

use proptest::prelude::*;

use super::code::Code;
use super::connect::{Agreed, Failure, Initiator, Offer, Responder};
use super::fpdu::Frames;
use super::rdmap::Atomic;
use super::receiver::{Event, Last};
use super::stream::Stream;
use super::terminate::Terminate;

/// The length of a part of a message that an end passes to its stream.
const PART: usize = 700;
/// The maximum length of a segment. It is so small that each part takes several segments.
const SEGMENT: usize = 300;

/// Tests that change one byte after the other advance by this step. Under Miri, they change only a few bytes.
const STEP: usize = if cfg!(miri) { 401 } else { 1 };

/// A request of the program at one end.
#[derive(Clone, Debug)]
enum Work {
    Send { length: usize, kind: Last },
    Immediate { is_solicited: bool },
    Write { length: usize },
    Read { length: usize },
    FetchAdd { add: u64 },
    CompareSwap { compare: u64, swap: u64 },
}

/// A complete message that the program at one end receives.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Send { bytes: Vec<u8>, kind: Last },
    Immediate { is_solicited: bool },
    Write { bytes: Vec<u8> },
    Read { bytes: Vec<u8> },
    Original(u64),
}

/// One end, and the bytes that it has sent and that have not arrived yet.
#[derive(Debug)]
struct End {
    stream: Stream,
    frames: Frames,
    out: Vec<u8>,
    /// The data of the message that has partly arrived.
    partial: Vec<u8>,
    seen: Vec<Seen>,
    /// The word on which the atomics of the peer operate.
    word: u64,
    error: Option<Code>,
    terminated: Option<Code>,
}

fn data(length: usize, seed: u64) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(31).wrapping_add(seed) >> 1) as u8).collect()
}

/// The STag and the offset of all writes and reads. The data that is written or read depends on the offset.
const STAG: u32 = 0x1234;
const OFFSET: u64 = 0xffff_0000_0000;

impl End {
    fn new(stream: Stream, out: Vec<u8>) -> Self {
        let frames = Frames::new(true);
        Self { stream, frames, out, partial: Vec::new(), seen: Vec::new(), word: 0, error: None, terminated: None }
    }

    fn request(&mut self, work: &Work) {
        assert!(self.stream.may_send());
        let (stream, out) = (&mut self.stream, &mut self.out);
        match *work {
            Work::Send { length, kind } => {
                parts(&data(length, 1), |at, part, is_last| stream.send(kind, at as u32, part, is_last, out));
            }
            Work::Immediate { is_solicited } => stream.immediate([5; 8], is_solicited, out),
            Work::Write { length } => {
                parts(&data(length, 2), |at, part, is_last| stream.write(STAG, OFFSET + at, part, is_last, out));
            }
            Work::Read { length } => stream.read(length as u32, STAG, OFFSET, out),
            Work::FetchAdd { add } => stream.atomic(STAG, OFFSET, Atomic::FetchAdd { add }, out),
            Work::CompareSwap { compare, swap } => {
                stream.atomic(STAG, OFFSET, Atomic::CompareSwap { compare, swap }, out);
            }
        }
    }

    /// Receives bytes, and responds to the requests in them.
    fn receive(&mut self, bytes: &[u8]) {
        if self.error.is_some() {
            return;
        }
        self.frames.add(bytes);
        loop {
            let next = match self.frames.next() {
                Ok(None) => return,
                Ok(Some(found)) => self.stream.segment(self.frames.segment(&found), &mut self.out),
                Err(code) => {
                    self.stream.terminate(&Terminate::new(code), &mut self.out);
                    Err(code)
                }
            };
            let request = match next {
                Ok(Event::ReadRequest(read)) => {
                    assert_eq!((read.source_stag, read.source_offset), (STAG, OFFSET));
                    let (stream, out) = (&mut self.stream, &mut self.out);
                    let answer = data(read.length as usize, 3);
                    parts(&answer, |at, part, _| stream.read_response(&read, at as u32, part, out));
                    continue;
                }
                Ok(Event::AtomicRequest(request)) => request,
                Ok(event) => {
                    see(event, &mut self.partial, &mut self.seen, &mut self.terminated);
                    continue;
                }
                Err(code) => {
                    self.error = Some(code);
                    return;
                }
            };
            assert_eq!((request.stag, request.offset), (STAG, OFFSET));
            let original = self.word;
            self.word = match request.kind {
                Atomic::FetchAdd { add } => original.wrapping_add(add),
                Atomic::CompareSwap { compare, swap } => {
                    if original == compare {
                        swap
                    } else {
                        original
                    }
                }
            };
            self.stream.atomic_response(request.id, original, &mut self.out);
        }
    }
}

/// Calls `f` with each part of a message. An empty message has one part.
fn parts(bytes: &[u8], mut f: impl FnMut(u64, &[u8], bool)) {
    let mut at = 0;
    loop {
        let end = bytes.len().min(at + PART);
        f(at as u64, &bytes[at..end], end == bytes.len());
        at = end;
        if at == bytes.len() {
            return;
        }
    }
}

/// Combines the parts of messages into messages.
fn see(event: Event<'_>, partial: &mut Vec<u8>, seen: &mut Vec<Seen>, terminated: &mut Option<Code>) {
    match event {
        Event::Send { offset, payload, last } => {
            assert_eq!(offset as usize, partial.len());
            partial.extend(payload);
            seen.extend(last.map(|kind| Seen::Send { bytes: std::mem::take(partial), kind }));
        }
        Event::Immediate { bytes, is_solicited } => {
            assert_eq!(bytes, [5; 8]);
            seen.push(Seen::Immediate { is_solicited });
        }
        // Each segment of a write is placed on its own.
        Event::Write { stag, offset, payload, .. } => match seen.last_mut() {
            Some(Seen::Write { bytes }) if offset == OFFSET + bytes.len() as u64 => bytes.extend(payload),
            _ => {
                assert_eq!((stag, offset), (STAG, OFFSET));
                seen.push(Seen::Write { bytes: payload.to_vec() });
            }
        },
        Event::ReadResponse { offset, payload, is_last } => {
            assert_eq!(offset as usize, partial.len());
            partial.extend(payload);
            if is_last {
                seen.push(Seen::Read { bytes: std::mem::take(partial) });
            }
        }
        Event::AtomicResponse { original } => seen.push(Seen::Original(original)),
        Event::Terminated(code) => *terminated = Some(code),
        Event::ReadRequest(_) | Event::AtomicRequest(_) | Event::Nothing => {}
    }
}

/// Returns the messages that the requests of one end cause, first those at the peer and then those at the end itself.
fn expected(works: &[Work]) -> (Vec<Seen>, Vec<Seen>) {
    let (mut there, mut here, mut word) = (Vec::new(), Vec::new(), 0_u64);
    for work in works {
        match *work {
            Work::Send { length, kind } => there.push(Seen::Send { bytes: data(length, 1), kind }),
            Work::Immediate { is_solicited } => there.push(Seen::Immediate { is_solicited }),
            Work::Write { length: 0 } => {}
            Work::Write { length } => there.push(Seen::Write { bytes: data(length, 2) }),
            Work::Read { length } => here.push(Seen::Read { bytes: data(length, 3) }),
            Work::FetchAdd { add } => {
                here.push(Seen::Original(word));
                word = word.wrapping_add(add);
            }
            Work::CompareSwap { compare, swap } => {
                here.push(Seen::Original(word));
                word = if word == compare { swap } else { word };
            }
        }
    }
    (there, here)
}

fn offer() -> Offer {
    Offer { ird: 64, ord: 64, has_crc: true, private: b"private".to_vec() }
}

/// Sets up a connection over a stream that arrives in pieces of at most `cut` bytes.
fn set_up(mut initiator: Initiator, cut: usize) -> (Agreed, Agreed) {
    let (mut request, mut reply) = (Vec::new(), Vec::new());
    initiator.start(&mut request).unwrap();
    let mut responder = Responder::default();
    let asked = request.chunks(cut).find_map(|bytes| responder.received(bytes).unwrap()).unwrap();
    let there = asked.accept(&offer(), &mut reply).unwrap();
    let here = reply.chunks(cut).find_map(|bytes| initiator.received(bytes).unwrap()).unwrap();
    (here, there)
}

fn ends(initiator: Initiator) -> [End; 2] {
    let (here, there) = set_up(initiator, usize::MAX);
    let mut out = Vec::new();
    let stream = Stream::initiator(&here, SEGMENT, &mut out);
    [End::new(stream, out), End::new(Stream::responder(&there, SEGMENT), Vec::new())]
}

/// Transfers bytes in both directions by turns until there are none. At most `cut` bytes are transferred at a time.
fn run([first, second]: &mut [End; 2], mut cut: impl FnMut() -> usize) {
    let mut pass = |from: &mut End, to: &mut End| {
        let length = cut().min(from.out.len());
        let bytes: Vec<u8> = from.out.drain(..length).collect();
        to.receive(&bytes);
    };
    while !first.out.is_empty() || !second.out.is_empty() {
        pass(first, second);
        pass(second, first);
    }
}

/// Returns one request of each kind.
fn all_works() -> Vec<Work> {
    let kind = Last { is_solicited: true, invalidate: Some(77) };
    vec![
        Work::Send { length: 800, kind },
        Work::Read { length: 900 },
        Work::Write { length: 0 },
        Work::Write { length: 750 },
        Work::FetchAdd { add: 9 },
        Work::Immediate { is_solicited: false },
        Work::CompareSwap { compare: 9, swap: u64::MAX },
        Work::Read { length: 0 },
        Work::Send { length: 0, kind: Last { is_solicited: false, invalidate: None } },
    ]
}

#[test]
fn set_up_survives_every_cut() {
    for cut in 1..40 {
        let (here, there) = set_up(Initiator::new(offer()), cut);
        assert_eq!(here, there);
        assert_eq!((here.ird, here.ord, &here.private[..]), (64, 64, &b"private"[..]));
    }
}

#[test]
fn revision_1_carries_all_requests_of_the_initiator() {
    let mut ends = ends(Initiator::of_revision_1(offer()));
    let [first, second] = &mut ends;
    assert!(first.out.is_empty() && !second.stream.may_send(), "the initiator sends first");
    all_works().iter().for_each(|work| first.request(work));
    run(&mut ends, || usize::MAX);
    let (there, here) = expected(&all_works());
    assert_eq!(ends.map(|end| end.seen), [here, there]);
}

#[test]
fn responder_sends_after_the_rtr_frame() {
    let mut ends = ends(Initiator::new(offer()));
    assert!(!ends[1].stream.may_send());
    run(&mut ends, || 1);
    assert!(ends[1].stream.may_send());
    all_works().iter().for_each(|work| ends[1].request(work));
    run(&mut ends, || usize::MAX);
    let (there, here) = expected(&all_works());
    assert_eq!(ends.map(|end| end.seen), [there, here]);
}

#[test]
fn rtr_read_is_not_visible() {
    let agreed = Agreed { rtr: Some(super::connect::Rtr::Read), ..set_up(Initiator::new(offer()), 9).0 };
    let mut out = Vec::new();
    let stream = Stream::initiator(&agreed, SEGMENT, &mut out);
    let mut ends = [End::new(stream, out), End::new(Stream::responder(&agreed, SEGMENT), Vec::new())];
    all_works().iter().for_each(|work| ends[0].request(work));
    run(&mut ends, || 50);
    let (there, here) = expected(&all_works());
    assert_eq!(ends.map(|end| end.seen), [here, there]);
}

/// Returns the bytes of an initiator that sends all requests.
fn script() -> Vec<u8> {
    let [mut first, _] = ends(Initiator::new(offer()));
    all_works().iter().for_each(|work| first.request(work));
    first.out
}

#[test]
fn reset_after_any_byte_leaves_complete_messages_only() {
    let (script, all) = (script(), expected(&all_works()).0);
    for length in (0..=script.len()).step_by(STEP) {
        let [_, mut second] = ends(Initiator::new(offer()));
        second.receive(&script[..length]);
        assert_eq!(second.error, None, "{length} bytes");
        for (seen, expected) in second.seen.iter().zip(&all) {
            match (seen, expected) {
                (Seen::Write { bytes }, Seen::Write { bytes: whole }) => assert!(whole.starts_with(bytes)),
                _ => assert_eq!(seen, expected, "{length} bytes"),
            }
        }
        assert!(second.seen.len() <= all.len());
    }
}

#[test]
fn damaged_byte_ends_the_connection_or_leaves_a_frame_incomplete() {
    let (script, all) = (script(), expected(&all_works()).0);
    for at in (0..script.len()).step_by(STEP) {
        let mut damaged = script.clone();
        damaged[at] ^= 0x10;
        let mut ends = ends(Initiator::new(offer()));
        ends[0].out.clear();
        ends[1].receive(&damaged);
        assert_ne!(ends[1].seen, all, "byte {at}");
        if let Some(code) = ends[1].error {
            assert_eq!(code, Code::CRC, "byte {at}");
            // The Terminate message follows the responses to the requests before the damage.
            let out = std::mem::take(&mut ends[1].out);
            let mut terminate = Vec::new();
            let [_, mut fresh] = self::ends(Initiator::new(offer()));
            fresh.stream.terminate(&Terminate::new(code), &mut terminate);
            assert!(out.ends_with(&terminate), "byte {at}");
        }
    }
}

#[test]
fn terminate_message_ends_both_directions() {
    let mut ends = ends(Initiator::new(offer()));
    run(&mut ends, || usize::MAX);
    let [first, _] = &mut ends;
    first.stream.terminate(&Terminate::new(Code::ACCESS), &mut first.out);
    first.stream.write(STAG, OFFSET, b"late", true, &mut first.out);
    run(&mut ends, || usize::MAX);
    assert_eq!((ends[1].terminated, ends[1].seen.len()), (Some(Code::ACCESS), 0));
}

#[test]
fn rejected_connection_returns_the_private_data() {
    let mut initiator = Initiator::new(offer());
    let (mut request, mut reply) = (Vec::new(), Vec::new());
    initiator.start(&mut request).unwrap();
    let asked = Responder::default().received(&request).unwrap().unwrap();
    asked.reject(b"busy", &mut reply).unwrap();
    assert_eq!(initiator.received(&reply), Err(Failure::Rejected { private: b"busy".to_vec() }));
}

fn work() -> impl Strategy<Value = Work> {
    let length = prop_oneof![0..20_usize, 0..3000_usize];
    (0..6, length, any::<bool>(), proptest::option::of(any::<u32>())).prop_map(|(kind, length, flag, key)| match kind {
        0 => Work::Send { length, kind: Last { is_solicited: flag, invalidate: key } },
        1 => Work::Immediate { is_solicited: flag },
        2 => Work::Write { length },
        3 => Work::Read { length },
        4 => Work::FetchAdd { add: length as u64 },
        _ => Work::CompareSwap { compare: u64::from(flag), swap: length as u64 },
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 2 } else { 200 }, ..Default::default() })]

    #[test]
    fn requests_of_both_ends_survive_any_cuts(
        works in [proptest::collection::vec(work(), 0..12), proptest::collection::vec(work(), 0..12)],
        cuts in proptest::collection::vec(1..2000_usize, 1..30),
    ) {
        let mut ends = ends(Initiator::new(offer()));
        run(&mut ends, || usize::MAX);
        for (end, works) in ends.iter_mut().zip(&works) {
            works.iter().for_each(|work| end.request(work));
        }
        let mut cuts = cuts.iter().cycle();
        run(&mut ends, || *cuts.next().unwrap());
        for (here, there) in [(0, 1), (1, 0)] {
            let (messages, _) = expected(&works[there]);
            let (_, answers) = expected(&works[here]);
            let seen = ends[here].seen.iter().cloned();
            let (got, arrived): (Vec<_>, Vec<_>) =
                seen.partition(|seen| matches!(seen, Seen::Read { .. } | Seen::Original(_)));
            prop_assert_eq!(got, answers);
            prop_assert_eq!(arrived, messages);
            prop_assert_eq!(ends[here].error, None);
        }
    }
}
