//! Times in buckets, which threads fill without a lock: each power of two has four.

use std::sync::atomic::{AtomicU32, Ordering};

const BUCKETS: usize = 40 * 4;

/// Counts of times, to 20 % of each.
#[derive(Debug)]
pub(crate) struct Histogram([AtomicU32; BUCKETS]);

impl Histogram {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU32::new(0) }; BUCKETS])
    }

    pub(crate) fn clear(&self) {
        self.0.iter().for_each(|bucket| bucket.store(0, Ordering::Relaxed));
    }

    #[inline]
    pub(crate) fn add(&self, nanoseconds: u64) {
        self.0[bucket_of(nanoseconds)].fetch_add(1, Ordering::Relaxed);
    }

    /// The time that this share of all times does not exceed; `None` if there are none.
    pub(crate) fn quantile(&self, share: f64) -> Option<u64> {
        let counts: Vec<u64> = self.0.iter().map(|bucket| bucket.load(Ordering::Relaxed).into()).collect();
        let total: u64 = counts.iter().sum();
        let wanted = (total as f64 * share).ceil().max(1.0) as u64;
        let mut sum = 0;
        let found = counts.iter().position(|count| {
            sum += count;
            sum >= wanted
        });
        found.map(middle_of)
    }
}

/// Times below four have a bucket each.
fn bucket_of(time: u64) -> usize {
    if time < 4 {
        return time as usize;
    }
    let power = time.ilog2();
    let quarter = (time >> (power - 2)) & 3;
    ((power as usize - 1) * 4 + quarter as usize).min(BUCKETS - 1)
}

fn middle_of(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let (power, quarter) = (bucket / 4 + 1, bucket as u64 % 4);
    let width = 1 << (power - 2);
    (4 + quarter) * width + width / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_near() {
        let histogram = Histogram::new();
        assert_eq!(histogram.quantile(0.5), None);
        (1..=1000).for_each(|time| histogram.add(time * 1000));
        for (share, expected) in [(0.5, 500_000.0), (0.99, 990_000.0), (0.0, 1000.0)] {
            let found = histogram.quantile(share).unwrap() as f64;
            assert!((found / expected - 1.0).abs() < 0.2, "{share}: {found}");
        }
    }

    #[test]
    fn buckets_are_in_order() {
        let mut last = 0;
        for time in (0..200).chain((8..60).map(|power| 1 << power)) {
            let bucket = bucket_of(time);
            assert!(bucket >= last && bucket < BUCKETS, "{time}");
            let middle = middle_of(bucket);
            assert!(bucket == BUCKETS - 1 || bucket_of(middle) == bucket, "{time} {middle}");
            last = bucket;
        }
    }
}
