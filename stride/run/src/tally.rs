//! Statistics of samples.

use hdrhistogram::Histogram;

/// Statistics of many samples. The samples themselves are not kept.
#[derive(Clone, Debug)]
pub struct Tally {
    samples: u64,
    min: u64,
    max: u64,
    mean: f64,
    /// The sum of the squared deviations from the mean.
    squares: f64,
    /// A histogram with a precision of three digits. The option is always `Some`, because the bounds are valid.
    fine: Option<Histogram<u64>>,
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

impl Tally {
    /// Returns a tally without samples.
    pub fn new() -> Self {
        let fine = Histogram::new_with_max(LONGEST, 3).ok();
        Self { samples: 0, min: u64::MAX, max: 0, mean: 0.0, squares: 0.0, fine }
    }

    /// Adds samples, in ticks of a clock.
    pub fn add(&mut self, ticks: impl Iterator<Item = u64> + Clone) {
        let (Some(min), Some(max)) = (ticks.clone().min(), ticks.clone().max()) else { return };
        let more = ticks.clone().count() as u64;
        let (mean, squares) = moments(ticks.clone(), min, more);
        // Combines the statistics of the earlier and the new samples as in Chan, Golub and LeVeque, "Updating
        // formulae", 1979.
        let (before, away) = (self.samples as f64, mean - self.mean);
        self.samples += more;
        let share = more as f64 / self.samples as f64;
        self.mean += away * share;
        self.squares += squares + away * away * before * share;
        (self.min, self.max) = (self.min.min(min), self.max.max(max));
        if let Some(fine) = &mut self.fine {
            ticks.for_each(|tick| fine.saturating_record(tick.min(LONGEST)));
        }
    }

    /// Returns the statistics, or `None` if there are no samples.
    pub fn summary(&self) -> Option<Summary> {
        let Self { samples, min, max, mean, squares, fine } = self;
        let (min, max, fine) = (*min, *max, fine.as_ref().filter(|_| *samples > 0)?);
        let stdev = (squares / *samples as f64).sqrt();
        let quantiles = QUANTILES.map(|quantile| fine.value_at_quantile(quantile).clamp(min, max));
        Some(Summary { samples: *samples, min, max, mean: *mean, stdev, quantiles, bins: bins(fine, max)? })
    }
}

/// The quantiles that a [`Summary`] contains.
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// Statistics of all samples, in ticks of the clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Number of samples.
    pub samples: u64,
    /// Minimum.
    pub min: u64,
    /// Maximum.
    pub max: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub stdev: f64,
    /// The quantiles 0.5, 0.9, 0.99, 0.999 and 0.9999.
    pub quantiles: [u64; 5],
    /// The histogram, which contains the upper end of each bin and the number of samples in it. Empty bins are left
    /// out.
    pub bins: Vec<(u64, u64)>,
}

/// Returns the mean, and the sum of the squared deviations from it. Both results are computed from the differences to
/// the minimum, so that they are precise even if times are long but differ little.
fn moments(ticks: impl Iterator<Item = u64> + Clone, min: u64, samples: u64) -> (f64, f64) {
    let above = ticks.map(|tick| (tick - min) as f64);
    let mean = above.clone().sum::<f64>() / samples as f64;
    let squares = above.map(|tick| (tick - mean).powi(2)).sum::<f64>();
    (min as f64 + mean, squares)
}

/// The longest time that a histogram can contain, which is 36 years in nanoseconds.
const LONGEST: u64 = 1 << 60;

/// Returns a histogram with a precision of two digits, which is small enough for a document and a screen.
fn bins(fine: &Histogram<u64>, max: u64) -> Option<Vec<(u64, u64)>> {
    let mut coarse = Histogram::<u64>::new_with_max(max.clamp(2, LONGEST), 2).ok()?;
    coarse.add(fine).ok()?;
    Some(
        coarse
            .iter_recorded()
            .map(|bin| (bin.value_iterated_to().min(max), bin.count_since_last_iteration()))
            .collect(),
    )
}
