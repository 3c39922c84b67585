//! Checks the intervals that the server reports while a step runs.

use crate::plan::{Measure, Plan};
use crate::stats::{Interval, Seen};

/// The state of the check, which contains the end of the last interval of a step.
#[derive(Debug)]
pub(super) struct IntervalCheck {
    measure: Measure,
    size: u64,
    end: f64,
}

impl IntervalCheck {
    pub(super) fn new(plan: &Plan, size: u64) -> Self {
        Self { measure: plan.workload.measure, size, end: 0.0 }
    }

    /// Accepts the next interval if its kind fits the plan, if it does not start before the last interval ended, and if
    /// its numbers are plausible.
    ///
    /// # Errors
    ///
    /// Returns how the server has violated the protocol.
    pub(super) fn take(&mut self, interval: &Interval) -> Result<(), String> {
        let Interval { start, end, seen } = *interval;
        match (self.measure, seen) {
            (Measure::Bandwidth, Seen::Bandwidth { .. }) | (Measure::Latency(_), Seen::Latency { .. }) => {}
            (Measure::Bandwidth, Seen::Latency { .. }) => return Err("reported times, expected message counts".into()),
            (Measure::Latency(_), Seen::Bandwidth { .. }) => return Err("reported messages, expected times".into()),
        }
        // This comparison also rejects NaN, because no range contains it.
        if !(self.end..=f64::MAX).contains(&start) || !(start..=f64::MAX).contains(&end) {
            return Err(format!(
                "reported an interval from {start} s to {end} s after one that ended at {} s",
                self.end
            ));
        }
        let is_speed = interval.rates(self.size).is_none_or(|rates| rates.gigabits_per_second.is_finite());
        let is_time = match seen {
            Seen::Bandwidth { .. } => true,
            Seen::Latency { min, mean, max, .. } => [min, mean, max].iter().all(|time| (0.0..=f64::MAX).contains(time)),
        };
        if !is_speed || !is_time {
            return Err(format!("reported an impossible interval: {seen:?} in {} s", end - start));
        }
        self.end = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Semantics, Workload};

    fn check(measure: Measure) -> IntervalCheck {
        IntervalCheck::new(&Plan { workload: Workload { measure, ..Workload::default() }, ..Plan::default() }, 64)
    }

    fn bandwidth(start: f64, end: f64, messages: u64) -> Interval {
        Interval { start, end, seen: Seen::Bandwidth { messages } }
    }

    #[test]
    fn overlapping_interval_is_rejected() {
        let mut check = check(Measure::Bandwidth);
        for right in
            [bandwidth(0.0, 1.0, 7), bandwidth(1.0, 2.0, 0), bandwidth(2.5, 2.5, 1), bandwidth(2.5, 4.0, u64::MAX)]
        {
            check.take(&right).unwrap();
        }
        for (start, end) in
            [(3.9, 5.0), (4.0, 3.9), (-1e300, 5.0), (f64::NAN, 5.0), (4.0, f64::NAN), (4.0, f64::INFINITY)]
        {
            let error = check.take(&bandwidth(start, end, 1)).unwrap_err();
            assert_eq!(error, format!("reported an interval from {start} s to {end} s after one that ended at 4 s"));
        }
        check.take(&bandwidth(4.0, 5.0, 1)).unwrap();
    }

    #[test]
    fn interval_of_another_kind_is_rejected() {
        let times =
            |min| Interval { start: 0.0, end: 1.0, seen: Seen::Latency { samples: 1, min, mean: 1.0, max: 1.0 } };
        let latency = Measure::Latency(Semantics::Ack);
        assert_eq!(check(Measure::Bandwidth).take(&times(1.0)).unwrap_err(), "reported times, expected message counts");
        assert_eq!(check(latency).take(&bandwidth(0.0, 1.0, 1)).unwrap_err(), "reported messages, expected times");
        check(latency).take(&times(1.0)).unwrap();
        for (measure, wrong) in [
            (latency, times(-1.0)),
            (latency, times(f64::INFINITY)),
            (Measure::Bandwidth, bandwidth(0.0, f64::MIN_POSITIVE, u64::MAX)),
        ] {
            let error = check(measure).take(&wrong).unwrap_err();
            assert!(error.starts_with("reported an impossible interval: "), "{error}");
        }
    }
}
