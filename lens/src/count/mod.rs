//! Counts: calls of verbs, and requests, bytes, errors and times of each queue pair.

mod histogram;
mod summary;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use histogram::Histogram;

pub use summary::{Operation, PairSummary, Summary, VerbSummary};

/// Kinds of requests that are counted apart.
const KINDS: [&str; 5] = ["send", "write", "read", "atomic", "other"];
/// The time of one of this number of requests is taken, unless a trace takes all.
const SAMPLED: u64 = 8;

/// Completions of unknown queue pairs.
pub(crate) static UNKNOWN: AtomicU64 = AtomicU64::new(0);

/// The counts of a queue pair.
#[derive(Debug)]
pub(crate) struct Counts {
    kinds: [OfKind; KINDS.len()],
    refused: AtomicU64,
    receives: AtomicU64,
    received: AtomicU64,
    received_bytes: AtomicU64,
    failed_receives: AtomicU64,
    turn: AtomicU32,
}

#[derive(Debug)]
struct OfKind {
    requests: AtomicU64,
    bytes: AtomicU64,
    completions: AtomicU64,
    errors: AtomicU64,
    times: Histogram,
}

/// The kind of an `ibv_wr_opcode`.
fn kind_of(opcode: u8) -> usize {
    match opcode {
        2 | 3 | 9 | 10 => 0,
        0 | 1 | 15 => 1,
        4 => 2,
        5 | 6 => 3,
        _ => 4,
    }
}

/// Adds without the cost of an atomic addition if no other thread adds, which holds for a queue that one thread uses.
#[inline]
fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

impl OfKind {
    const fn new() -> Self {
        Self {
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            completions: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            times: Histogram::new(),
        }
    }

    fn counters(&self) -> [&AtomicU64; 4] {
        [&self.requests, &self.bytes, &self.completions, &self.errors]
    }
}

impl Counts {
    pub(crate) const fn new() -> Self {
        Self {
            kinds: [const { OfKind::new() }; KINDS.len()],
            refused: AtomicU64::new(0),
            receives: AtomicU64::new(0),
            received: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            failed_receives: AtomicU64::new(0),
            turn: AtomicU32::new(0),
        }
    }

    fn counters(&self) -> [&AtomicU64; 5] {
        [&self.refused, &self.receives, &self.received, &self.received_bytes, &self.failed_receives]
    }

    /// Starts from zero.
    pub(crate) fn start(&self) {
        self.counters().iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        for kind in &self.kinds {
            kind.counters().iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
            kind.times.clear();
        }
    }

    /// Whether the time of the next request is taken.
    #[inline]
    pub(crate) fn wants_time(&self) -> bool {
        u64::from(self.turn.fetch_add(1, Ordering::Relaxed)) % SAMPLED == 0
    }

    #[inline]
    pub(crate) fn posted(&self, opcode: u8, bytes: u64) {
        let kind = &self.kinds[kind_of(opcode)];
        add(&kind.requests, 1);
        add(&kind.bytes, bytes);
    }

    pub(crate) fn refused(&self, count: u64) {
        add(&self.refused, count);
    }

    pub(crate) fn received(&self, count: u64) {
        add(&self.receives, count);
    }

    #[inline]
    pub(crate) fn completed(&self, opcode: u8, took: Option<u64>, is_success: bool) {
        let kind = &self.kinds[kind_of(opcode)];
        add(if is_success { &kind.completions } else { &kind.errors }, 1);
        if let Some(took) = took.filter(|_| is_success) {
            kind.times.add(took);
        }
    }

    #[inline]
    pub(crate) fn got(&self, bytes: u32) {
        add(&self.received, 1);
        add(&self.received_bytes, bytes.into());
    }

    pub(crate) fn failed_receive(&self) {
        add(&self.failed_receives, 1);
    }
}

/// The counts of a verb.
#[derive(Clone, Copy, Debug, Default)]
struct Verb {
    calls: u64,
    errors: u64,
    nanoseconds: u64,
}

static VERBS: Mutex<BTreeMap<&'static str, Verb>> = Mutex::new(BTreeMap::new());
/// Queue pairs that were destroyed.
static RETIRED: Mutex<Vec<PairSummary>> = Mutex::new(Vec::new());
/// Destroyed queue pairs that are kept apart; the others are only in the totals.
const KEPT: usize = 1000;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn call(verb: &'static str, nanoseconds: u64, failed: bool) {
    let verb = verb.trim_start_matches('_');
    let mut verbs = lock(&VERBS);
    let counts = verbs.entry(verb).or_default();
    counts.calls += 1;
    counts.errors += u64::from(failed);
    counts.nanoseconds += nanoseconds;
}

/// Keeps the counts of a queue pair that was destroyed.
pub(crate) fn retire(pair: PairSummary) {
    if crate::state::on() & crate::state::COUNT == 0 {
        return;
    }
    let mut retired = lock(&RETIRED);
    if retired.len() < KEPT && !pair.is_idle() {
        retired.push(pair);
    }
}

/// Starts from zero.
pub(crate) fn start() {
    lock(&VERBS).clear();
    lock(&RETIRED).clear();
    UNKNOWN.store(0, Ordering::Relaxed);
}
