//! The counts as values and as a table, like that of `strace -c`.

use std::fmt;
use std::sync::atomic::Ordering;

use super::{Counts, KINDS, OTHERS, RETIRED, UNKNOWN, VERBS, lock};

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Calls of verbs, by name.
    pub verbs: Vec<VerbSummary>,
    /// Queue pairs, in the order of their destruction, then those that exist.
    pub pairs: Vec<PairSummary>,
    /// Completions of queue pairs that the lens does not know, such as those that functions of a vendor have made.
    pub unknown: u64,
}

/// The calls of a verb.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerbSummary {
    /// The name.
    pub verb: &'static str,
    /// The number of calls.
    pub calls: u64,
    /// Calls that failed.
    pub errors: u64,
    /// The sum of their times.
    pub nanoseconds: u64,
}

/// The requests of a queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PairSummary {
    /// The device.
    pub device: String,
    /// The number of the queue pair; `None` for the sum of all destroyed ones beyond the first thousand.
    pub qp: Option<u32>,
    /// Requests by operation, without those that never occurred.
    pub operations: Vec<Operation>,
    /// Requests that the device refused.
    pub refused: u64,
    /// Messages that it received, and their bytes.
    pub received: u64,
    /// The bytes of these messages.
    pub received_bytes: u64,
    /// Completions with an error; without a trace or faults, those of requests are among them.
    pub failures: u64,
    /// Signaled requests that have not completed.
    pub in_flight: u64,
}

/// Requests of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operation {
    /// `send`, `write`, `read`, `atomic` or `other`.
    pub name: &'static str,
    /// Posted requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Completions without an error. Unsignaled requests have none.
    pub completions: u64,
    /// Completions with an error.
    pub errors: u64,
    /// Nanoseconds from the post to the completion, as the program polled it: the median of some requests.
    pub median: Option<u64>,
    /// The 99th percentile of these times.
    pub p99: Option<u64>,
}

impl PairSummary {
    pub(crate) fn new(device: String, qp: u32, counts: &Counts) -> Self {
        let operations = KINDS.iter().zip(&counts.kinds).filter_map(|(name, kind)| {
            let [requests, bytes, completions, errors] = kind.counters().map(|counter| counter.load(Ordering::Relaxed));
            let (median, p99) = (kind.times.quantile(0.5), kind.times.quantile(0.99));
            (requests + errors > 0).then_some(Operation { name, requests, bytes, completions, errors, median, p99 })
        });
        let [refused, received, received_bytes, failures] =
            counts.counters().map(|counter| counter.load(Ordering::Relaxed));
        Self {
            device,
            qp: Some(qp),
            operations: operations.collect(),
            refused,
            received,
            received_bytes,
            failures,
            in_flight: counts.in_flight(),
        }
    }

    /// The sum of several queue pairs, of which this is the first.
    pub(super) fn into_others(self) -> Self {
        Self { device: "all".to_owned(), qp: None, in_flight: 0, ..self }.without_times()
    }

    /// Quantiles of several queue pairs cannot be added.
    fn without_times(mut self) -> Self {
        for row in &mut self.operations {
            (row.median, row.p99) = (None, None);
        }
        self
    }

    /// The sum with another queue pair.
    pub(crate) fn with(mut self, other: &Self) -> Self {
        for row in &other.operations {
            match self.operations.iter_mut().find(|own| own.name == row.name) {
                Some(own) => {
                    own.requests += row.requests;
                    own.bytes += row.bytes;
                    own.completions += row.completions;
                    own.errors += row.errors;
                }
                None => self.operations.push(Operation { median: None, p99: None, ..row.clone() }),
            }
        }
        self.in_flight += other.in_flight;
        self.refused += other.refused;
        self.received += other.received;
        self.received_bytes += other.received_bytes;
        self.failures += other.failures;
        self
    }

    /// Whether nothing happened on it.
    pub(super) fn is_idle(&self) -> bool {
        self.operations.is_empty() && self.refused + self.received + self.failures == 0
    }
}

impl Summary {
    /// The counts until now, with the queue pairs that exist.
    pub(crate) fn with(existing: Vec<PairSummary>) -> Self {
        let verbs = lock(&VERBS)
            .iter()
            .map(|(verb, counts)| VerbSummary {
                verb,
                calls: counts.calls,
                errors: counts.errors,
                nanoseconds: counts.nanoseconds,
            })
            .collect();
        let mut pairs = lock(&RETIRED).clone();
        pairs.extend(lock(&OTHERS).clone());
        pairs.extend(existing.into_iter().filter(|pair| !pair.is_idle()));
        Self { verbs, pairs, unknown: UNKNOWN.load(Ordering::Relaxed) }
    }
}

/// A time to three digits, with its unit.
struct Time(Option<u64>);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            None => "-".to_owned(),
            Some(ns) if ns < 1000 => format!("{ns} ns"),
            Some(ns) if ns < 1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
            Some(ns) if ns < 1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
            Some(ns) => format!("{:.1} s", ns as f64 / 1e9),
        };
        f.pad(&text)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>10} {:>10} {:>8}  verb", "time", "calls", "errors")?;
        let mut verbs: Vec<&VerbSummary> = self.verbs.iter().collect();
        verbs.sort_by_key(|verb| std::cmp::Reverse(verb.nanoseconds));
        for verb in verbs {
            writeln!(f, "{:>10} {:>10} {:>8}  {}", Time(Some(verb.nanoseconds)), verb.calls, verb.errors, verb.verb)?;
        }
        writeln!(
            f,
            "\n{:>10}  {:<8} {:>10} {:>14} {:>8} {:>8} {:>10} {:>10}",
            "qp", "requests", "posted", "bytes", "errors", "flight", "p50", "p99"
        )?;
        for pair in &self.pairs {
            let number = pair.qp.map_or_else(|| "others".to_owned(), |qp| format!("{qp:#x}"));
            for row in &pair.operations {
                writeln!(
                    f,
                    "{number:>10}  {:<8} {:>10} {:>14} {:>8} {:>8} {:>10} {:>10}",
                    row.name,
                    row.requests,
                    row.bytes,
                    row.errors,
                    pair.in_flight,
                    Time(row.median),
                    Time(row.p99)
                )?;
            }
            if pair.received + pair.failures > 0 {
                writeln!(
                    f,
                    "{number:>10}  {:<8} {:>10} {:>14} {:>8}",
                    "receive", pair.received, pair.received_bytes, pair.failures
                )?;
            }
            if pair.refused > 0 {
                writeln!(f, "{number:>10}  {:<8} {:>10}", "refused", pair.refused)?;
            }
        }
        if self.unknown > 0 {
            writeln!(f, "{:>10}  {:<8} {:>10}", "unknown", "all", self.unknown)?;
        }
        Ok(())
    }
}
