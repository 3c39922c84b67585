//! The intervals of a running step, which are computed from the data that the threads have put into the [`Signal`].

use std::time::{Duration, Instant};

use stride_run::{Moment, SampleWindow, Scale, Signal, Tsc};

use crate::plan::{Measure, Plan, Semantics};
use crate::stats::{Interval, Seen, share};

/// Length of the intervals if `--interval` is absent.
const USUAL: Duration = Duration::from_secs(1);
/// Length of the shortest interval that is reported while the step runs. Reading the progress more often would disturb
/// the measurement.
pub(crate) const SHORTEST: Duration = Duration::from_millis(100);

/// Returns the length of the intervals that are reported while the plan runs.
pub(crate) fn length(plan: &Plan) -> Duration {
    plan.sampling.interval.unwrap_or(USUAL).max(SHORTEST)
}

/// Computes the intervals of a step, in order.
#[derive(Debug)]
pub(crate) struct Intervals {
    length: Duration,
    semantics: Option<Semantics>,
    /// Start of the first interval of a bandwidth test. `first` is the start for a latency test.
    begin: Option<Instant>,
    first: Option<(Tsc, Scale)>,
    /// End of the last interval, and the time at which the next one is due.
    last: Option<(Moment, Instant)>,
    is_over: bool,
}

impl Intervals {
    pub(crate) fn new(plan: &Plan) -> Self {
        let semantics = match plan.workload.measure {
            Measure::Bandwidth => None,
            Measure::Latency(semantics) => Some(semantics),
        };
        Self { length: length(plan), semantics, begin: None, first: None, last: None, is_over: false }
    }

    /// Returns the intervals that have ended since the last call. When the step has ended, the rest is also an interval
    /// if it has at least half of the length.
    pub(crate) fn look(&mut self, signal: &Signal, now: Instant) -> Vec<Interval> {
        match self.semantics {
            Some(semantics) => signal.take_samples().iter().map(|window| self.times(window, semantics)).collect(),
            None => self.messages(signal, now).into_iter().collect(),
        }
    }

    /// When the next interval is due, if known. In bandwidth tests, [`look`](Self::look) ends the intervals; in latency
    /// tests, the measuring thread does.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.last.filter(|_| !self.is_over).map(|(_, due)| due)
    }

    fn messages(&mut self, signal: &Signal, now: Instant) -> Option<Interval> {
        let opened = signal.opened()?;
        let begin = *self.begin.get_or_insert(opened.at);
        let (last, due) = *self.last.get_or_insert((opened, opened.at + self.length));
        let closed = signal.closed();
        if self.is_over {
            return None;
        }
        self.is_over = closed.is_some();
        let end = closed.unwrap_or(Moment { at: now, done: signal.done() });
        let since = end.at.saturating_duration_since(last.at);
        if end.at < due && (closed.is_none() || since < self.length / 2) {
            return None;
        }
        // If this call is late, the interval is longer than planned. The later intervals are still due at the planned
        // times.
        let late = end.at.saturating_duration_since(due).as_nanos() / self.length.as_nanos().max(1);
        let next = due + self.length * u32::try_from(late + 1).unwrap_or(u32::MAX);
        self.last = Some((end, next));
        let from = |at: Instant| at.saturating_duration_since(begin).as_secs_f64();
        let messages = end.done.saturating_sub(last.done);
        Some(Interval { start: from(last.at), end: from(end.at), seen: Seen::Bandwidth { messages } })
    }

    fn times(&mut self, window: &SampleWindow, semantics: Semantics) -> Interval {
        // All intervals use the same scale, so that each interval starts exactly at the end of the previous one.
        let (first, scale) = *self.first.get_or_insert_with(|| (window.start, Scale::now()));
        let from = |at: Tsc| scale.seconds(at.since(first));
        let (part, samples) = (share(semantics) * scale.tick(), window.samples);
        let mean = window.sum as f64 / samples.max(1) as f64 * part;
        let (min, max) = (window.min as f64 * part, window.max as f64 * part);
        Interval { start: from(window.start), end: from(window.end), seen: Seen::Latency { samples, min, mean, max } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Sampling, Workload};

    fn plan(measure: Measure) -> Plan {
        Plan {
            workload: Workload { measure, ..Workload::default() },
            sampling: Sampling { interval: Some(Duration::from_millis(200)), ..Sampling::default() },
            ..Plan::default()
        }
    }

    #[test]
    fn intervals_start_with_the_window() {
        let (signal, mut intervals) = (Signal::default(), Intervals::new(&plan(Measure::Bandwidth)));
        let begin = Instant::now();
        let at = |milliseconds| begin + Duration::from_millis(milliseconds);
        let seen = |intervals: &mut Intervals, milliseconds| {
            let seen = intervals.look(&signal, at(milliseconds));
            seen.iter().map(|one| ((one.start * 1e3).round(), (one.end * 1e3).round(), one.seen)).collect::<Vec<_>>()
        };
        let messages = |messages| Seen::Bandwidth { messages };
        signal.add(128);
        assert_eq!(seen(&mut intervals, 900), [], "the warm-up has no interval");
        assert_eq!(intervals.due(), None);
        signal.open(at(1000));
        signal.add(10);
        assert_eq!(seen(&mut intervals, 1190), []);
        assert_eq!(intervals.due(), Some(at(1200)));
        assert_eq!(seen(&mut intervals, 1210), [(0.0, 210.0, messages(10))]);
        assert_eq!(intervals.due(), Some(at(1400)));
        signal.add(20);
        assert_eq!(seen(&mut intervals, 1390), []);
        // The thread was not scheduled for a while.
        assert_eq!(seen(&mut intervals, 1830), [(210.0, 830.0, messages(20))]);
        signal.add(5);
        assert_eq!(seen(&mut intervals, 2010), [(830.0, 1010.0, messages(5))]);
        signal.add(7);
        signal.close(at(2110));
        // Messages that complete while the loop waits for the last requests do not count.
        signal.add(128);
        assert_eq!(seen(&mut intervals, 2500), [(1010.0, 1110.0, messages(7))]);
        assert_eq!(seen(&mut intervals, 9999), []);
        assert_eq!(intervals.due(), None);
    }

    #[test]
    fn short_remainder_is_not_reported() {
        let (signal, mut intervals) = (Signal::default(), Intervals::new(&plan(Measure::Bandwidth)));
        let begin = Instant::now();
        signal.open(begin);
        signal.close(begin + Duration::from_millis(99));
        assert_eq!(intervals.look(&signal, begin + Duration::from_secs(9)), []);
    }

    #[test]
    fn oneway_intervals_have_half_the_round_trip() {
        let plan = plan(Measure::Latency(Semantics::Oneway));
        let (signal, mut intervals) = (Signal::default(), Intervals::new(&plan));
        let start = Tsc::now();
        let window = |from, to| {
            let at = |seconds| start.after(Duration::from_secs(seconds));
            [1000, 4000].into_iter().fold(SampleWindow::new(at(from)), |window, time| window.with(time)).until(at(to))
        };
        signal.add_samples(window(5, 6));
        signal.add_samples(window(6, 8));
        let seen = intervals.look(&signal, Instant::now());
        let rounded = seen.iter().map(|one| (one.start.round(), one.end.round())).collect::<Vec<_>>();
        assert_eq!(rounded, [(0.0, 1.0), (1.0, 3.0)]);
        assert_eq!(intervals.look(&signal, Instant::now()), []);
        let mut intervals = Intervals { first: Some((start, Scale::default())), ..Intervals::new(&plan) };
        let of = intervals.times(&SampleWindow::new(start).with(1000).with(4000), Semantics::Oneway);
        assert_eq!(of.seen, Seen::Latency { samples: 2, min: 500.0, mean: 1250.0, max: 2000.0 });
    }

    #[test]
    fn interval_length_has_a_minimum() {
        let of = |interval| length(&Plan { sampling: Sampling { interval, ..Sampling::default() }, ..Plan::default() });
        assert_eq!([None, Some(Duration::from_millis(1))].map(of), [USUAL, SHORTEST]);
        assert_eq!(of(Some(Duration::from_secs(7))), Duration::from_secs(7));
    }
}
