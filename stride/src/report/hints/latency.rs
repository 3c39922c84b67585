//! Hints for latency tests.

use super::{Given, Hint};
use crate::plan::{LATENCY_MESSAGES, RunLength};
use crate::report::Row;

/// If there are fewer samples than this, the p99.99 equals the maximum.
const SAMPLES: u64 = 10_000;

/// If there are fewer samples than this, the p99.9 equals the maximum.
const THOUSAND: u64 = 1000;

/// If the p99.9 is longer than the median by this factor, the hint about outliers applies.
const LONG: f64 = 10.0;

pub(super) fn hints(given: &Given<'_>) -> Vec<Hint> {
    let mut all = Vec::new();
    let samples = given.rows.iter().filter_map(Row::latency).map(|latency| latency.samples).min();
    let Some(samples) = samples else { return all };
    if given.plan.queues.sleeps_on_events {
        all.push(Hint::Slept);
    }
    all.extend(
        given.rows.iter().filter_map(|row| tail(given, row)).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, hint)| hint),
    );
    // The default number of samples is accepted.
    let is_default = matches!(given.plan.workload.amount, RunLength::Messages { count: LATENCY_MESSAGES, .. });
    if samples < SAMPLES && !is_default {
        all.push(Hint::FewSamples(samples));
    }
    all
}

/// Returns the hint and the ratio of the p99.9 to the median.
fn tail(given: &Given<'_>, row: &Row) -> Option<(f64, Hint)> {
    let latency = row.latency().filter(|latency| latency.samples >= THOUSAND)?;
    let (p50, p99_9) = (latency.p50, latency.p99_9);
    let is_long = p50 > 0.0 && p99_9 > LONG * p50;
    is_long.then(|| (p99_9 / p50, Hint::Tail { size: row.size, p50, p99_9, governor: governor(given) }))
}

/// Returns the frequency governor of the first side on which it is not `performance`.
fn governor(given: &Given<'_>) -> Option<String> {
    let mut all = given.sides.into_iter().map(|port_info| &port_info.cpu_governor);
    all.find(|governor| !matches!(governor.as_str(), "" | "performance")).cloned()
}

#[cfg(test)]
mod tests {
    use super::super::tests::Case;
    use super::*;
    use crate::plan::Semantics;
    use crate::stats::{Figures, Latency};

    #[test]
    fn few_samples_cause_a_hint() {
        let mut case = Case::latency();
        case.rows.push(crate::report::sample::latency_row(8, 1000));
        assert_eq!(case.hints(), [Hint::FewSamples(1000)]);
        case.plan.workload.amount = RunLength::Messages { count: 2000, warm_up: 0 };
        assert_eq!(case.hints(), [Hint::FewSamples(1000)]);
        case.plan.workload.amount = RunLength::Messages { count: LATENCY_MESSAGES, warm_up: 100 };
        assert_eq!(case.hints(), []);
    }

    #[test]
    fn long_tail_causes_a_hint() {
        let mut case = Case::latency();
        let ticks = (0..100_000u64).map(|i| if i % 500 == 0 { 30_000u64 } else { 1000 });
        let latency = Latency::of(ticks, 1.0, Semantics::Ack).unwrap();
        case.rows.push(Row::new(16, Figures::Latency(latency)));
        let hints = case.hints();
        let [Hint::Tail { size: 16, p50, p99_9, governor: None }] = hints[..] else { panic!("{hints:?}") };
        assert!(p50 < 1010.0 && p99_9 >= 30_000.0, "{p50} {p99_9}");
        assert!(hints[0].to_string().starts_with("16 B: p99.9 is 30 times the median"), "{}", hints[0]);
        case.sides[1].cpu_governor = "powersave".to_owned();
        let text = case.hints()[0].to_string();
        assert!(text.ends_with("and the governor `performance` instead of `powersave`."), "{text}");
    }

    #[test]
    fn single_long_sample_of_few_causes_no_tail_hint() {
        let mut case = Case::latency();
        let row = |count| {
            let ticks = (0..count).map(|i| if i < 2 { 30_000u64 } else { 1000 });
            Row::new(2, Figures::Latency(Latency::of(ticks, 1.0, Semantics::Ack).unwrap()))
        };
        case.rows = vec![row(999)];
        assert_eq!(case.hints(), [Hint::FewSamples(999)]);
        case.rows = vec![row(1000)];
        assert!(matches!(case.hints()[..], [Hint::Tail { .. }, Hint::FewSamples(1000)]), "{:?}", case.hints());
    }

    #[test]
    fn sleeping_threads_cause_a_hint() {
        let mut case = Case::latency();
        case.plan.queues.sleeps_on_events = true;
        assert_eq!(case.hints(), [Hint::Slept]);
    }
}
