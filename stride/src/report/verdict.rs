//! The verdict of a test with limits or a baseline, in a form for programs.

use serde::{Deserialize, Serialize};

use super::compare::{Comparison, Outcome};
use super::limits::Miss;

/// The verdict of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether all limits are met, and no size is worse than the baseline by more than the threshold.
    pub is_held: bool,
    /// The limits that were missed.
    pub misses: Vec<Missed>,
    /// The comparison with the baseline, or `None` if there is no baseline.
    pub comparison: Option<Compared>,
}

/// A limit that a size has missed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Missed {
    /// Message size in bytes.
    pub size_bytes: u64,
    /// The option that sets the limit.
    pub option: String,
    /// The limit, in the unit of the option.
    pub limit: f64,
    /// The value that was found, or `None` if it is not a number.
    pub found: Option<f64>,
}

/// The comparison with a baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The threshold in percent.
    pub threshold_percent: f64,
    /// The result of the comparison.
    pub outcome: Outcome,
    /// The sizes that both tests have.
    pub sizes: Vec<Size>,
    /// Sizes of the baseline that this test did not run.
    pub missing_bytes: Vec<u64>,
    /// Sizes of this test that are missing in the baseline.
    pub added_bytes: Vec<u64>,
    /// Other differences, as sentences. `None` if the baseline has no environment.
    pub differences: Option<Vec<String>>,
}

/// A size that both tests have, with its results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Size {
    /// Message size in bytes.
    pub size_bytes: u64,
    /// The value in the baseline, which is the average in Gb/s or the median in nanoseconds.
    pub old: Option<f64>,
    /// The value in this test, in the same unit.
    pub new: Option<f64>,
    /// Improvement in percent, which means a higher bandwidth or a lower latency. `None` if it is not a number.
    pub gain_percent: Option<f64>,
    /// Whether the size is worse by more than the threshold.
    pub is_worse: bool,
}

fn number(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

impl Missed {
    pub(crate) fn of(miss: &Miss) -> Self {
        Self {
            size_bytes: miss.size,
            option: miss.measure.option().to_owned(),
            limit: miss.limit,
            found: number(miss.found),
        }
    }
}

impl Size {
    /// Returns the sizes that both tests have.
    pub(crate) fn all(comparison: &Comparison) -> impl Iterator<Item = Self> + '_ {
        comparison.changes().iter().map(|change| Self {
            size_bytes: change.size,
            old: number(change.values[0]),
            new: number(change.values[1]),
            gain_percent: number(comparison.gain(change)),
            is_worse: comparison.is_worse(change),
        })
    }
}

impl Verdict {
    /// Creates a verdict from the limits that were missed and from the comparison with the baseline. The list of texts
    /// contains other differences.
    pub fn new(misses: &[Miss], compared: Option<(&Comparison, Option<Vec<String>>)>) -> Self {
        let misses: Vec<_> = misses.iter().map(Missed::of).collect();
        let comparison = compared.map(|(comparison, differences)| Compared::new(comparison, differences));
        let is_same = comparison.as_ref().is_none_or(|compared| compared.outcome == Outcome::Held);
        Self { is_held: misses.is_empty() && is_same, misses, comparison }
    }
}

impl Compared {
    fn new(comparison: &Comparison, differences: Option<Vec<String>>) -> Self {
        Self {
            threshold_percent: comparison.threshold(),
            outcome: comparison.outcome(),
            sizes: Size::all(comparison).collect(),
            missing_bytes: comparison.gone().to_vec(),
            added_bytes: comparison.added().to_vec(),
            differences,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Measure;
    use crate::report::limits::Limits;
    use crate::report::{Series, sample};

    #[test]
    fn limits_and_baseline_form_one_verdict() {
        let series = |rows: &[(u64, u64)]| {
            let rows = rows.iter().map(|&(size, messages)| sample::bandwidth_row(size, messages)).collect();
            Series::of_plan("it", &sample::plan(Measure::Bandwidth), rows)
        };
        let (old, new) = (series(&[(2, 10), (64, 1000), (128, 0)]), series(&[(64, 900), (128, 10), (256, 10)]));
        let comparison = Comparison::of(&old, &new, 5.0).unwrap();
        let verdict = Verdict::new(&[], Some((&comparison, Some(vec!["mtu".to_owned()]))));
        let compared = verdict.comparison.unwrap();
        assert!(!verdict.is_held && compared.outcome == Outcome::Worse);
        assert_eq!((compared.missing_bytes, compared.added_bytes), (vec![2], vec![256]));
        let worse: Vec<_> = compared.sizes.iter().map(|size| (size.size_bytes, size.is_worse)).collect();
        assert_eq!(worse, [(64, true), (128, false)]);
        assert_eq!(compared.sizes[1].gain_percent, None, "from nothing");
        let held = Comparison::of(&old, &new, 50.0).unwrap();
        assert!(Verdict::new(&[], Some((&held, None))).is_held);
        let misses = Limits { min_mpps: Some(1.0), ..Limits::default() }.missed(&new.rows[..1], &[], &[]);
        let verdict = Verdict::new(&misses, Some((&held, None)));
        assert!(!verdict.is_held && verdict.misses[0].option == "--min-mpps");
    }
}
