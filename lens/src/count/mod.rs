//! Counts: calls of verbs, and requests, bytes, errors and times of each queue pair.

mod histogram;
mod summary;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::state;
use histogram::Histogram;

pub use summary::{Operation, PairSummary, Summary, VerbSummary};

/// Kinds of requests that are counted apart.
const KINDS: [&str; 5] = ["send", "write", "read", "atomic", "other"];
/// Without a trace, the time of one call in this number of calls is taken.
const SAMPLED: u32 = 8;

/// Completions of unknown queue pairs.
pub(crate) static UNKNOWN: AtomicU64 = AtomicU64::new(0);

/// The counts of a queue pair.
#[derive(Debug)]
pub(crate) struct Counts {
    kinds: [OfKind; KINDS.len()],
    refused: AtomicU64,
    received: AtomicU64,
    received_bytes: AtomicU64,
    failures: AtomicU64,
    /// A request has failed since the queue pair was reset.
    is_broken: AtomicBool,
    /// Signaled requests that were posted, and that completed.
    signaled: AtomicU64,
    completed: AtomicU64,
    /// Calls that post.
    turn: AtomicU32,
    /// The signaled request whose time is taken, counted from one, and when it was posted; zero for none.
    sample: AtomicU64,
    sampled_at: AtomicU64,
}

#[derive(Debug)]
struct OfKind {
    requests: AtomicU64,
    bytes: AtomicU64,
    completions: AtomicU64,
    errors: AtomicU64,
    times: Histogram,
}

/// The kind of each `ibv_wr_opcode`.
const KIND_OF_REQUEST: [u8; 16] = [1, 1, 0, 0, 2, 3, 3, 4, 4, 0, 0, 4, 4, 4, 4, 1];
/// The kind of each `ibv_wc_opcode` of a request.
const KIND_OF_COMPLETION: [u8; 16] = [0, 1, 2, 3, 3, 4, 4, 0, 4, 1, 4, 4, 4, 4, 4, 4];

/// Requests that are posted together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    /// The kind of the last requests, their number and their bytes.
    kind: u8,
    requests: u64,
    bytes: u64,
    signaled: u64,
    /// Requests and bytes of each kind before them.
    before: Option<Box<[(u64, u64); KINDS.len()]>>,
}

impl Run {
    #[inline]
    pub(crate) fn add(&mut self, opcode: u32, is_signaled: bool, bytes: u64) {
        if !self.add_alike(opcode, is_signaled, bytes) {
            self.change(KIND_OF_REQUEST[opcode as usize % KIND_OF_REQUEST.len()]);
            self.add_alike(opcode, is_signaled, bytes);
        }
    }

    /// Adds a request of the kind of the last one. Returns `false` if it has another kind.
    #[inline]
    pub(crate) fn add_alike(&mut self, opcode: u32, is_signaled: bool, bytes: u64) -> bool {
        let is_alike = KIND_OF_REQUEST[opcode as usize % KIND_OF_REQUEST.len()] == self.kind;
        if is_alike {
            self.requests += 1;
            self.bytes += bytes;
            self.signaled += u64::from(is_signaled);
        }
        is_alike
    }

    #[cold]
    #[inline(never)]
    fn change(&mut self, kind: u8) {
        if self.requests > 0 {
            let before = self.before.get_or_insert_default();
            let (requests, bytes) = &mut before[usize::from(self.kind) % KINDS.len()];
            *requests += std::mem::take(&mut self.requests);
            *bytes += std::mem::take(&mut self.bytes);
        }
        self.kind = kind;
    }

    /// Adds to the bytes of the last request.
    #[inline]
    pub(crate) fn add_bytes(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    pub(crate) fn requests(&self) -> u64 {
        let before = self.before.iter().flat_map(|before| before.iter());
        self.requests + before.map(|(requests, _)| requests).sum::<u64>()
    }

    /// Returns the requests, and starts the next batch, probably of the same kind.
    #[inline]
    pub(crate) fn take(&mut self) -> Self {
        let next = Self { kind: self.kind, ..Self::default() };
        std::mem::replace(self, next)
    }

    pub(crate) fn has_signaled(&self) -> bool {
        self.signaled > 0
    }
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

fn add(counter: &AtomicU64, amount: u64) {
    if amount > 0 {
        counter.fetch_add(amount, Ordering::Relaxed);
    }
}

impl Counts {
    pub(crate) const fn new() -> Self {
        Self {
            kinds: [const { OfKind::new() }; KINDS.len()],
            refused: AtomicU64::new(0),
            received: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            is_broken: AtomicBool::new(false),
            signaled: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            turn: AtomicU32::new(0),
            sample: AtomicU64::new(0),
            sampled_at: AtomicU64::new(0),
        }
    }

    fn counters(&self) -> [&AtomicU64; 4] {
        [&self.refused, &self.received, &self.received_bytes, &self.failures]
    }

    /// Starts from zero.
    pub(crate) fn start(&self) {
        self.counters().iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        self.nothing_in_flight();
        for kind in &self.kinds {
            kind.counters().iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
            kind.times.clear();
        }
    }

    /// Called before a call posts a signaled request: takes the time of some of them.
    #[inline]
    pub(crate) fn will_post(&self) {
        if self.turn.fetch_add(1, Ordering::Relaxed).is_multiple_of(SAMPLED) && self.sample.load(Ordering::Relaxed) == 0
        {
            self.sampled_at.store(state::now(), Ordering::Relaxed);
            self.sample.store(self.signaled.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
    }

    /// Adds requests that the device has accepted.
    #[inline]
    pub(crate) fn posted(&self, run: &Run) {
        if run.requests > 0 {
            let kind = &self.kinds[usize::from(run.kind) % KINDS.len()];
            kind.requests.fetch_add(run.requests, Ordering::Relaxed);
            add(&kind.bytes, run.bytes);
        }
        for (kind, (requests, bytes)) in self.kinds.iter().zip(run.before.iter().flat_map(|before| before.iter())) {
            add(&kind.requests, *requests);
            add(&kind.bytes, *bytes);
        }
        add(&self.signaled, run.signaled);
    }

    pub(crate) fn refused(&self, count: u64) {
        if count > 0 {
            add(&self.refused, count);
            // It may be the request whose time is taken.
            self.sample.store(0, Ordering::Relaxed);
        }
    }

    /// Adds messages that arrived.
    #[inline]
    pub(crate) fn received(&self, messages: u64, bytes: u64) {
        self.received.fetch_add(messages, Ordering::Relaxed);
        add(&self.received_bytes, bytes);
    }

    /// Adds successes of requests.
    #[inline]
    pub(crate) fn completed(&self, opcode: u32, requests: u64) {
        let kind = KIND_OF_COMPLETION[opcode as usize % KIND_OF_COMPLETION.len()];
        let kind = &self.kinds[usize::from(kind) % KINDS.len()];
        kind.completions.fetch_add(requests, Ordering::Relaxed);
        let done = self.completed.fetch_add(requests, Ordering::Relaxed) + requests;
        let sample = self.sample.load(Ordering::Acquire);
        if sample != 0 && done >= sample {
            self.take_time(kind);
        }
    }

    #[cold]
    fn take_time(&self, kind: &OfKind) {
        let at = self.sampled_at.load(Ordering::Relaxed);
        if self.sample.swap(0, Ordering::AcqRel) != 0 {
            kind.times.add(state::now().saturating_sub(at));
        }
    }

    /// Adds the time of a request, which the trace or the faults have followed.
    pub(crate) fn took(&self, opcode: u32, nanoseconds: u64) {
        let kind = KIND_OF_REQUEST[opcode as usize % KIND_OF_REQUEST.len()];
        self.kinds[usize::from(kind)].times.add(nanoseconds);
    }

    /// Adds a failed request.
    pub(crate) fn failed(&self, opcode: u32) {
        let kind = KIND_OF_REQUEST[opcode as usize % KIND_OF_REQUEST.len()];
        add(&self.kinds[usize::from(kind)].errors, 1);
        self.completed.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds failures of requests or of receives, which only a trace distinguishes.
    pub(crate) fn failed_unknown(&self, count: u64) {
        add(&self.failures, count);
        self.is_broken.store(true, Ordering::Relaxed);
        self.sample.store(0, Ordering::Relaxed);
    }

    /// No request is in flight: the queue pair was reset.
    pub(crate) fn nothing_in_flight(&self) {
        self.is_broken.store(false, Ordering::Relaxed);
        [&self.signaled, &self.completed, &self.sample].iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    /// Signaled requests that have not completed.
    pub(crate) fn in_flight(&self) -> u64 {
        if self.is_broken.load(Ordering::Relaxed) {
            // After a failure all requests complete, and it is not known which of them have.
            return 0;
        }
        self.signaled.load(Ordering::Relaxed).saturating_sub(self.completed.load(Ordering::Relaxed))
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
/// Destroyed queue pairs that are kept apart.
const KEPT: usize = 1000;
/// The sums of the other destroyed queue pairs.
static OTHERS: Mutex<Option<PairSummary>> = Mutex::new(None);

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
    if state::on() & state::COUNT == 0 {
        return;
    }
    let mut retired = lock(&RETIRED);
    if retired.len() < KEPT {
        if !pair.is_idle() {
            retired.push(pair);
        }
    } else {
        let others = lock(&OTHERS).take();
        *lock(&OTHERS) = Some(others.map_or_else(|| pair.clone().into_others(), |others| others.with(&pair)));
    }
}

/// Starts from zero.
pub(crate) fn start() {
    lock(&VERBS).clear();
    lock(&RETIRED).clear();
    *lock(&OTHERS) = None;
    UNKNOWN.store(0, Ordering::Relaxed);
}
