//! Hints about intervals that the user requested but that never ended.

use super::{Given, Hint};
use crate::endpoint::interval;
use crate::plan::{Measure, RunLength};
use crate::report::Row;
use crate::stats::share;

/// Returns the hint for tests that run for a number of messages. The number of intervals of a timed test is known
/// before it runs.
pub(super) fn hint(given: &Given<'_>) -> Option<Hint> {
    let plan = given.plan;
    let length = plan.sampling.interval?;
    let (true, RunLength::Messages { .. }) = (!given.rows.is_empty(), plan.workload.amount) else { return None };
    match plan.workload.measure {
        Measure::Bandwidth => {
            // If nothing arrived, there is no interval, no matter how long the test ran.
            let mut arrived =
                given.rows.iter().filter(|row| row.bandwidth().is_none_or(|all| all.arrived != Some(0))).peekable();
            arrived.peek()?;
            arrived.all(|row| row.jitter().is_none()).then_some(Hint::NoTwoIntervals(length))
        }
        Measure::Latency(semantics) => {
            let length = interval::length(plan);
            let pause = plan.workload.gap.unwrap_or_default().as_secs_f64();
            let time = |row: &Row| {
                let latency = row.latency()?;
                Some(latency.samples as f64 * (latency.mean / share(semantics) / 1e9 + pause))
            };
            // If the rest is at least half of an interval, it is also reported.
            let has_some = given.rows.iter().filter_map(time).any(|time| time >= length.as_secs_f64() / 2.0);
            (!has_some).then_some(Hint::NoInterval(length))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::Case;
    use super::*;

    #[test]
    fn intervals_longer_than_the_run_cause_a_hint() {
        let of = |case: &mut Case, milliseconds| {
            case.plan.sampling.interval = Some(Duration::from_millis(milliseconds));
            let hints = case.hints();
            hints.into_iter().find(|hint| matches!(hint, Hint::NoInterval(_) | Hint::NoTwoIntervals(_)))
        };
        // The test has 100,000 messages with a round trip of 1.05 us.
        let mut case = Case::latency();
        assert_eq!(of(&mut case, 300), None, "the number of intervals of a timed test is known before");
        case.plan.workload.amount = RunLength::Messages { count: 100_000, warm_up: 0 };
        let hint = of(&mut case, 300).expect("it took 105 ms");
        assert_eq!(hint, Hint::NoInterval(Duration::from_millis(300)));
        assert!(hint.to_string().starts_with("Every size ended within half an interval of 300ms"), "{hint}");
        assert_eq!(of(&mut case, 200), None);
        case.plan.workload.gap = Some(Duration::from_micros(1));
        assert_eq!(of(&mut case, 300), None, "with pauses, the size took longer");
        let mut case = Case::bandwidth();
        case.plan.workload.amount = RunLength::Messages { count: 702_000, warm_up: 0 };
        assert_eq!(of(&mut case, 250), None);
        for row in &mut case.rows {
            let crate::stats::Figures::Bandwidth(bandwidth) = &mut row.figures else { unreachable!("a bandwidth") };
            bandwidth.intervals.truncate(1);
        }
        assert_eq!(of(&mut case, 800), Some(Hint::NoTwoIntervals(Duration::from_millis(800))));
        for row in &mut case.rows {
            let crate::stats::Figures::Bandwidth(bandwidth) = &mut row.figures else { unreachable!("a bandwidth") };
            bandwidth.arrived = Some(0);
        }
        assert_eq!(of(&mut case, 800), None, "nothing arrived, however long the test ran");
    }

    #[test]
    fn shortest_interval_hint_suggests_no_shorter_one() {
        let of = |milliseconds| Hint::NoInterval(Duration::from_millis(milliseconds)).to_string();
        assert!(of(200).contains("a shorter --interval") && !of(100).contains("shorter"));
    }
}
