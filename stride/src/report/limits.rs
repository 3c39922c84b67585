//! Limits that each row must meet. If a row does not, the test fails.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::fmt;

use super::{Row, bytes_in_words};

/// The limits for each row. `None` means that there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Minimum average in Gb/s.
    pub min_gbps: Option<f64>,
    /// Minimum average in million messages per second.
    pub min_mpps: Option<f64>,
    /// Maximum 99th percentile in microseconds.
    pub max_p99: Option<f64>,
}

/// A limit that a row does not meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Miss {
    /// Message size in bytes.
    pub size: u64,
    /// The value that was found. NaN if nothing was measured.
    pub found: f64,
    /// The value of the limit.
    pub limit: f64,
    /// The kind of limit.
    pub measure: Measured,
    /// Whether the limit is missed whatever the value is, because nothing arrived in one direction or over one port.
    pub is_silent: bool,
}

/// The kind of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// The average in Gb/s.
    Gigabits,
    /// The average in million messages per second.
    Rate,
    /// The 99th percentile in microseconds.
    P99,
}

impl Measured {
    /// Returns the option that sets the limit.
    pub fn option(self) -> &'static str {
        match self {
            Self::Gigabits => "--min-gbps",
            Self::Rate => "--min-mpps",
            Self::P99 => "--max-p99",
        }
    }
}

/// Returns the unit of the value of an option that sets a limit.
pub(super) fn unit(option: &str) -> &'static str {
    match option {
        "--min-gbps" => "Gb/s",
        "--min-mpps" => "Mmsg/s",
        "--max-p99" => "us",
        _ => "",
    }
}

impl Limits {
    /// Whether the user gave no limits.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the limits that are missed. If a size was completed without a row, it misses all limits. A row misses a
    /// limit if its value is unknown, if it has no messages, or if its size is in `silent`. The sizes in `silent` are
    /// those for which nothing arrived over one of several paths.
    pub fn missed(&self, rows: &[Row], unmeasured: &[u64], silent: &[u64]) -> Vec<Miss> {
        let all = [(self.min_gbps, Measured::Gigabits), (self.min_mpps, Measured::Rate), (self.max_p99, Measured::P99)];
        let none = unmeasured.iter().flat_map(|&size| {
            let miss = move |limit, measure| Miss { size, found: f64::NAN, limit, measure, is_silent: false };
            all.into_iter().filter_map(move |(limit, measure)| Some(miss(limit?, measure)))
        });
        rows.iter().flat_map(|row| self.misses(row, silent.contains(&row.size))).flatten().chain(none).collect()
    }

    fn misses(&self, row: &Row, is_silent: bool) -> [Option<Miss>; 2] {
        let size = row.size;
        let miss = |found, limit, measure| Some(Miss { size, found, limit, measure, is_silent });
        if let Some(latency) = row.latency() {
            let found = latency.p99 / 1000.0;
            let limit = self.max_p99.filter(|limit| !matches!(found.partial_cmp(limit), Some(Less | Equal)));
            return [limit.and_then(|limit| miss(found, limit, Measured::P99)), None];
        }
        let Some(average) = row.average() else { return [None; 2] };
        let has_some = row.bandwidth().is_some_and(|bandwidth| bandwidth.messages > 0) && !is_silent;
        let below = |limit: Option<f64>, found: f64, measure| {
            let is_kept = |limit: &f64| has_some && matches!(found.partial_cmp(limit), Some(Greater | Equal));
            let limit = limit.filter(|limit| !is_kept(limit));
            limit.and_then(|limit| miss(found, limit, measure))
        };
        let rate = average.messages_per_second / 1e6;
        [
            below(self.min_gbps, average.gigabits_per_second, Measured::Gigabits),
            below(self.min_mpps, rate, Measured::Rate),
        ]
    }
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size, found, limit, .. } = self;
        let size = bytes_in_words(*size);
        if found.is_nan() {
            let option = self.measure.option();
            return write!(f, "{size}: nothing was measured; {option} requires {limit}");
        }
        if self.is_silent {
            let option = self.measure.option();
            return write!(f, "{size}: nothing arrived in one direction or over one port; {option} requires {limit}");
        }
        match self.measure {
            Measured::Gigabits => write!(f, "{size}: {found:.3} Gb/s, less than the {limit} Gb/s of --min-gbps"),
            Measured::Rate => {
                write!(f, "{size}: {found:.6} million messages a second, less than the {limit} of --min-mpps")
            }
            Measured::P99 => write!(f, "{size}: p99 of {found:.3} us, more than the {limit} us of --max-p99"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn bandwidth_below_the_limit_is_missed() {
        let rows = [64, 4096, 8192].map(|size| sample::bandwidth_row(size, 1_000_000));
        let limits = Limits { min_gbps: Some(32.768), max_p99: Some(0.0), ..Limits::default() };
        let texts: Vec<_> = limits.missed(&rows, &[], &[]).iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["64 B: 0.512 Gb/s, less than the 32.768 Gb/s of --min-gbps"]);
        assert_eq!(Limits::default().missed(&rows, &[], &[]), []);
    }

    #[test]
    fn message_rate_below_the_limit_is_missed() {
        let rows = [64, 128].map(|size| sample::bandwidth_row(size, 1_000_000 * (size / 64)));
        let limits = Limits { min_mpps: Some(2.0), ..Limits::default() };
        let texts: Vec<_> = limits.missed(&rows, &[], &[]).iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["64 B: 1.000000 million messages a second, less than the 2 of --min-mpps"]);
        // A row can miss both limits.
        let limits = Limits { min_gbps: Some(100.0), ..limits };
        assert_eq!(limits.missed(&rows, &[], &[]).len(), 3);
        assert_eq!(limits.missed(&[sample::latency_row(2, 1000)], &[], &[]), []);
    }

    #[test]
    fn latency_above_the_limit_is_missed() {
        let rows = [(2, 1000), (4096, 2000)].map(|(size, time)| sample::latency_row(size, time));
        let limits = Limits { max_p99: Some(2.5), ..Limits::default() };
        let texts: Vec<_> = limits.missed(&rows, &[], &[]).iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["4 KiB: p99 of 3.979 us, more than the 2.5 us of --max-p99"]);
    }

    #[test]
    fn unknown_value_misses_a_limit() {
        let mut row = sample::latency_row(2, 1000);
        if let crate::stats::Figures::Latency(latency) = &mut row.figures {
            latency.p99 = f64::NAN;
        }
        assert_eq!(Limits { max_p99: Some(1e9), ..Limits::default() }.missed(&[row], &[], &[]).len(), 1);
    }

    #[test]
    fn unmeasured_size_misses_all_limits() {
        let limits = Limits { max_p99: Some(1.0), ..Limits::default() };
        let texts: Vec<_> = limits.missed(&[], &[8 << 20], &[]).iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["8 MiB: nothing was measured; --max-p99 requires 1"]);
        assert_eq!(Limits::default().missed(&[], &[8 << 20], &[]), []);
        let mut none = sample::bandwidth_row(64, 1_000_000);
        if let crate::stats::Figures::Bandwidth(bandwidth) = &mut none.figures {
            bandwidth.messages = 0;
        }
        let limits = Limits { min_gbps: Some(0.0), min_mpps: Some(0.0), ..Limits::default() };
        assert_eq!(limits.missed(&[none], &[], &[]).len(), 2);
    }

    #[test]
    fn path_without_arrivals_misses_a_limit() {
        let rows = [64, 128].map(|size| sample::bandwidth_row(size, 1_000_000));
        let limits = Limits { min_gbps: Some(0.1), min_mpps: Some(0.1), max_p99: None };
        assert_eq!(limits.missed(&rows, &[], &[]), []);
        let texts: Vec<_> = limits.missed(&rows, &[], &[128]).iter().map(ToString::to_string).collect();
        let expected =
            |option| format!("128 B: nothing arrived in one direction or over one port; {option} requires 0.1");
        assert_eq!(texts, [expected("--min-gbps"), expected("--min-mpps")]);
    }
}
