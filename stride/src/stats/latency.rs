//! The figures of latency tests.

use serde::{Deserialize, Serialize};
use stride_run::{Summary, Tally};

use crate::plan::Semantics;

/// The figures of a latency test in nanoseconds. Percentiles are computed from all samples, and are rounded up to three
/// digits.
///
/// Values that are unknown, as they can be in the results of other tools, are NaN.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Number of samples.
    pub samples: u64,
    /// Minimum.
    #[serde(rename = "min_nanoseconds")]
    pub min: f64,
    /// Mean.
    #[serde(rename = "mean_nanoseconds")]
    pub mean: f64,
    /// Standard deviation.
    #[serde(rename = "stdev_nanoseconds")]
    pub stdev: f64,
    /// Median.
    #[serde(rename = "p50_nanoseconds")]
    pub p50: f64,
    /// 90th percentile.
    #[serde(rename = "p90_nanoseconds")]
    pub p90: f64,
    /// 99th percentile.
    #[serde(rename = "p99_nanoseconds")]
    pub p99: f64,
    /// 99.9th percentile.
    #[serde(rename = "p99_9_nanoseconds")]
    pub p99_9: f64,
    /// 99.99th percentile.
    #[serde(rename = "p99_99_nanoseconds")]
    pub p99_99: f64,
    /// Maximum.
    #[serde(rename = "max_nanoseconds")]
    pub max: f64,
    /// The histogram, which contains the upper end of each bin in nanoseconds and the number of samples in it. Empty
    /// bins are left out.
    #[serde(rename = "histogram_nanoseconds")]
    pub histogram: Vec<(f64, u64)>,
}

impl Latency {
    /// Computes the figures from samples of all threads, in ticks of a clock. Returns `None` if there are no samples.
    ///
    /// The loops always measure the whole time until the awaited event. Only this function halves it for
    /// [`Semantics::Oneway`].
    pub fn of<T, I>(ticks: I, nanoseconds_per_tick: f64, semantics: Semantics) -> Option<Self>
    where
        T: Into<u64>,
        I: IntoIterator<Item = T>,
        I::IntoIter: Clone,
    {
        let mut tally = Tally::new();
        tally.add(ticks.into_iter().map(Into::into));
        Self::of_tally(&tally, nanoseconds_per_tick, semantics)
    }

    /// Returns the median, or the mean if the median is unknown.
    pub fn middle(&self) -> f64 {
        if self.p50.is_finite() { self.p50 } else { self.mean }
    }

    /// Computes the figures from the statistics of the samples, as [`of`](Self::of) does from the samples themselves.
    pub(crate) fn of_tally(tally: &Tally, nanoseconds_per_tick: f64, semantics: Semantics) -> Option<Self> {
        let Summary { samples, min, max, mean, stdev, quantiles, bins } = tally.summary()?;
        let scale = nanoseconds_per_tick * share(semantics);
        let [p50, p90, p99, p99_9, p99_99] = quantiles.map(|ticks| ticks as f64 * scale);
        Some(Self {
            samples,
            min: min as f64 * scale,
            mean: mean * scale,
            stdev: stdev * scale,
            p50,
            p90,
            p99,
            p99_9,
            p99_99,
            max: max as f64 * scale,
            histogram: bins.into_iter().map(|(end, count)| (end as f64 * scale, count)).collect(),
        })
    }
}

/// Returns which fraction of a measured time is the latency.
pub(crate) fn share(semantics: Semantics) -> f64 {
    match semantics {
        Semantics::Oneway => 0.5,
        Semantics::Ack | Semantics::Rtt => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(ticks: &[u64]) -> Latency {
        Latency::of(ticks.iter().copied(), 1.0, Semantics::Ack).unwrap()
    }

    #[test]
    fn no_samples_have_no_figures() {
        assert_eq!(Latency::of(std::iter::empty::<u32>(), 1.0, Semantics::Rtt), None);
    }

    #[test]
    fn single_sample_is_every_percentile() {
        let one = Latency::of([7u32], 2.0, Semantics::Rtt).unwrap();
        assert_eq!((one.samples, one.min, one.p50, one.p99_99, one.max), (1, 14.0, 14.0, 14.0, 14.0));
        assert_eq!((one.mean, one.stdev), (14.0, 0.0));
        assert_eq!(one.histogram, [(14.0, 1)]);
    }

    #[test]
    fn zero_is_a_valid_sample() {
        let none = of(&[0, 0]);
        assert_eq!((none.samples, none.p50, none.max, none.stdev), (2, 0.0, 0.0, 0.0));
    }

    #[test]
    fn deviation_below_a_microsecond_is_precise() {
        let latency = of(&[2700, 3300, 2700, 3300]);
        assert!((latency.stdev - 300.0).abs() < 1e-9, "{}", latency.stdev);
        assert!((latency.mean - 3000.0).abs() < 1e-9, "{}", latency.mean);
    }

    #[test]
    fn huge_samples_do_not_panic() {
        let latency = of(&[1, u64::MAX]);
        assert_eq!((latency.min, latency.max, latency.samples), (1.0, u64::MAX as f64, 2));
    }

    #[test]
    fn maximum_is_exact() {
        let latency = of(&[1_000, 1_001, 123_456_789]);
        assert_eq!(latency.max, 123_456_789.0);
        assert_eq!(latency.p99_99, 123_456_789.0);
    }

    #[test]
    fn oneway_is_half_of_the_round_trip() {
        let [half, whole] =
            [Semantics::Oneway, Semantics::Rtt].map(|it| Latency::of([10u32, 20, 30], 1.0, it).unwrap());
        assert_eq!((half.min, half.mean, half.p50, half.max), (5.0, 10.0, 10.0, 15.0));
        assert_eq!(whole.stdev, 2.0 * half.stdev);
        assert_eq!(whole.histogram.last(), Some(&(30.0, 1)));
        assert_eq!(half.histogram.last(), Some(&(15.0, 1)));
    }

    /// Returns the sample at a percentile of sorted samples.
    fn sorted_at(sorted: &[u64], quantile: f64) -> f64 {
        let rank = (quantile * sorted.len() as f64).ceil().max(1.0) as usize;
        sorted[rank - 1] as f64
    }

    #[test]
    fn combined_parts_equal_the_whole() {
        let ticks: Vec<u64> = (0..10_000).map(|at| 1_000_000_000 + at * at % 9973).collect();
        let mut tally = Tally::new();
        for part in [&ticks[..1], &ticks[1..7000], &[], &ticks[7000..]] {
            tally.add(part.iter().copied());
        }
        let (parts, whole) = (Latency::of_tally(&tally, 1.0, Semantics::Ack).unwrap(), of(&ticks));
        assert!((parts.mean - whole.mean).abs() < 1e-6 && (parts.stdev - whole.stdev).abs() < 1e-6, "{parts:?}");
        let exact = |one: Latency| Latency { mean: 0.0, stdev: 0.0, ..one };
        assert_eq!(exact(parts), exact(whole));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn percentiles_match_sorted_samples(mut ticks in prop::collection::vec(prop_oneof![0u64..5_000, 0u64..5_000_000_000], 1..400)) {
            let latency = of(&ticks);
            ticks.sort_unstable();
            prop_assert_eq!(latency.samples, ticks.len() as u64);
            prop_assert_eq!(latency.min, ticks[0] as f64);
            prop_assert_eq!(latency.max, *ticks.last().unwrap() as f64);
            let found = [latency.p50, latency.p90, latency.p99, latency.p99_9, latency.p99_99];
            for (found, quantile) in found.into_iter().zip([0.5, 0.9, 0.99, 0.999, 0.9999]) {
                let plain = sorted_at(&ticks, quantile);
                prop_assert!(found >= plain && found <= plain * 1.001 + 1.0, "{}: {} {}", quantile, found, plain);
            }
            let mean = ticks.iter().map(|&tick| tick as f64).sum::<f64>() / ticks.len() as f64;
            prop_assert!((latency.mean - mean).abs() <= 1e-9 * mean.max(1.0));
            let variance = ticks.iter().map(|&tick| (tick as f64 - mean).powi(2)).sum::<f64>() / ticks.len() as f64;
            prop_assert!((latency.stdev - variance.sqrt()).abs() <= 1e-6 * variance.sqrt().max(1.0));
        }

        #[test]
        fn bins_contain_all_samples(ticks in prop::collection::vec(0u64..10_000_000, 1..400)) {
            let latency = of(&ticks);
            prop_assert_eq!(latency.histogram.iter().map(|bin| bin.1).sum::<u64>(), latency.samples);
            prop_assert!(latency.histogram.windows(2).all(|bins| bins[0].0 < bins[1].0));
            prop_assert!(latency.histogram.iter().all(|bin| bin.1 > 0));
            prop_assert_eq!(latency.histogram.last().unwrap().0, latency.max);
        }
    }
}
