//! Tests that random programs of requests have the same result with a peer in this process and with a peer in another
//! process.

use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;

use super::wire::Link;
use super::*;
use crate::wire::packet::MAX_PAYLOAD;

const PART: usize = MAX_PAYLOAD as usize;
/// The length of the memory from which sends and writes take their data. The memory into which reads write follows, and
/// then the word of the atomics.
const AREA: usize = 2 * PART + 64;

#[derive(Clone, Copy, Debug)]
struct Step {
    kind: u8,
    length: usize,
    /// The kind of error that the program contains, if any.
    fault: u8,
    is_fenced: bool,
    is_signaled: bool,
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0_usize), 1..100_usize, Just(PART), Just(PART + 1), PART..AREA]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..9_u8, lengths(), prop_oneof![20 => Just(0_u8), 1 => 1..4_u8], any::<bool>(), any::<bool>());
    let step = step.prop_map(|(kind, length, fault, is_fenced, is_signaled)| Step {
        kind,
        length,
        fault,
        is_fenced,
        is_signaled,
    });
    vec(step, 1..SLOTS as usize)
}

/// The result of a program that can be observed.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    sent: Vec<(u64, u32, u32, u32)>,
    received: Vec<(u64, u32, u32, u32, u32)>,
    states: [State; 2],
    events: [Vec<PairEvent>; 2],
}

struct Stage {
    ours: Bytes,
    theirs: Bytes,
}

impl Stage {
    fn new(a: &End, b: &End, receives: &[usize]) -> Self {
        let stage =
            Self { ours: Bytes::new(&a.domain, 2 * AREA + 8, ALL), theirs: Bytes::new(&b.domain, 2 * AREA + 8, ALL) };
        let pattern: Vec<_> = (0..AREA).map(|index| (index * 3 + index / 256) as u8).collect();
        stage.ours.set(0, &pattern);
        stage.theirs.set(AREA, &pattern);
        for (wr_id, length) in receives.iter().enumerate() {
            b.receive(
                wr_id as u64,
                &[stage.theirs.piece(0, length / 3), stage.theirs.piece(length / 3, length - length / 3)],
            );
        }
        stage
    }

    fn post(&self, a: &End, wr_id: u64, step: Step) {
        let (address, mut rkey) = (IOVA, self.theirs.key());
        if step.fault == 1 {
            rkey ^= 1;
        }
        let written = if step.fault == 2 { address + 2 * AREA as u64 } else { address };
        let word = address + 2 * AREA as u64;
        let (operation, place, length) = match step.kind {
            0 | 1 => (Operation::Send, 0, step.length),
            2 => (Operation::SendImmediate { immediate: 77 }, 0, step.length),
            3 | 4 => (Operation::Write { address: written, rkey }, 0, step.length),
            5 => (Operation::WriteImmediate { address: written, rkey, immediate: 78 }, 0, step.length),
            6 => (Operation::Read { address: written + AREA as u64, rkey }, AREA, step.length),
            7 => (Operation::FetchAdd { address: word, rkey, add: 3 }, 2 * AREA, 8),
            _ => (Operation::CompareSwap { address: word, rkey, compare: 3, swap: 9 }, 2 * AREA, 8),
        };
        a.post(wr_id, operation, |work| {
            work.is_fenced = step.is_fenced;
            work.is_signaled = step.is_signaled;
            let mut piece = self.ours.piece(place, length);
            if step.fault == 3 {
                piece.lkey ^= 1;
            }
            work.pieces.push(piece);
        });
    }

    fn end(&self, a: &End, b: &End) -> Outcome {
        let all = |queue: &CompletionQueue| std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>();
        Outcome {
            sent: all(&a.sends).iter().map(|c| (c.wr_id, c.status.0, c.opcode.0, c.byte_len)).collect(),
            received: all(&b.receives)
                .iter()
                .map(|c| (c.wr_id, c.status.0, c.opcode.0, c.byte_len, c.immediate))
                .collect(),
            states: [a.pair.state(), b.pair.state()],
            events: [a.log.events(), b.log.events()],
        }
    }
}

impl Outcome {
    fn then(mut self, later: Self) -> Self {
        self.sent.extend(later.sent);
        self.received.extend(later.received);
        for (events, more) in self.events.iter_mut().zip(later.events) {
            events.extend(more);
        }
        Self { states: later.states, ..self }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    #[cfg_attr(miri, ignore = "Miri rejects atomic stores of different sizes to the same memory, which overlapping messages are")]
    fn end_alike_here_and_elsewhere(
        program in steps(),
        receives in vec(prop_oneof![1 => lengths(), 5 => Just(AREA)], 0..SLOTS as usize),
        is_reliable: bool,
        room in prop_oneof![Just(1_usize), Just(3), Just(1000)],
        reads in 1..4_u8,
        brought in vec(0..4_usize, 0..200),
    ) {
        let service = if is_reliable { Service::ReliableConnection } else { Service::UnreliableConnection };
        // A request to a peer that is not ready is not retried, because the number of retries would depend on the time.
        let set = |ours: &mut Attributes| (ours.rnr_retry, ours.max_rd_atomic, ours.max_dest_rd_atomic) = (0, reads, 4);

        let (a, b) = (End::new(service), End::new(service));
        for (end, other) in [(&a, &b), (&b, &a)] {
            let mut ours = attributes(other.pair.number());
            set(&mut ours);
            end.ready(&ours);
        }
        let here = Stage::new(&a, &b, &receives);
        for (wr_id, step) in program.iter().enumerate() {
            here.post(&a, wr_id as u64, *step);
        }
        let expected = here.end(&a, &b);

        let link = Link::with(service, set);
        let there = Stage::new(&link.a, &link.b, &receives);
        if is_reliable {
            link.wires.iter().for_each(|wire| wire.set_space(room));
        }
        let mut brought = brought.into_iter();
        for (wr_id, step) in program.iter().enumerate() {
            there.post(&link.a, wr_id as u64, *step);
            for wire in brought.by_ref().take(10) {
                link.deliver(wire);
            }
        }
        link.settle();
        let mut found = there.end(&link.a, &link.b);
        // The thread of softrnic may be running and handle later packets after this.
        let limit = Instant::now() + Duration::from_secs(60);
        while found != expected && Instant::now() < limit {
            thread::sleep(Duration::from_millis(1));
            link.settle();
            found = found.then(there.end(&link.a, &link.b));
        }
        prop_assert_eq!(found, expected);
        for (one, other) in [(&here.ours, &there.ours), (&here.theirs, &there.theirs)] {
            prop_assert!(one.get(0, 2 * AREA + 8) == other.get(0, 2 * AREA + 8), "the memory differs");
        }
    }
}
