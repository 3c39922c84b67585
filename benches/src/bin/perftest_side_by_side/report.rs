//! What the runs come to.

use std::collections::BTreeMap;
use std::fmt;

use sideway_benches::measure;
use stride_perf::report::Row;

use super::test::Test;

/// The figures of all rounds, perftest's first.
#[derive(Debug)]
pub(crate) struct Report {
    test: Test,
    turn: [BTreeMap<u64, f64>; 2],
    /// Of each size a pair for each round.
    rounds: BTreeMap<u64, Vec<[f64; 2]>>,
}

impl Report {
    pub(crate) fn new(test: Test) -> Self {
        Self { test, turn: Default::default(), rounds: BTreeMap::new() }
    }

    /// The rows of one of the two.
    pub(crate) fn add(&mut self, is_ours: bool, rows: &[Row]) {
        let figures = rows.iter().filter_map(|row| Some((row.size, figure(row)?)));
        self.turn[usize::from(is_ours)].extend(figures);
    }

    /// Both have had their turn.
    pub(crate) fn end_turn(&mut self) {
        let [theirs, ours] = std::mem::take(&mut self.turn);
        for (size, theirs) in theirs {
            if let Some(&ours) = ours.get(&size) {
                self.rounds.entry(size).or_default().push([theirs, ours]);
            }
        }
    }
}

/// Gigabits a second, or the median in microseconds.
fn figure(row: &Row) -> Option<f64> {
    match row.latency() {
        Some(latency) => Some(latency.p50 / 1000.0),
        None => row.average().map(|rates| rates.gigabits_per_second),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if self.test.is_latency() { "us" } else { "Gb/s" };
        let name = format!("{} {}, {unit}", self.test.operation(), self.test.measure());
        writeln!(f, "| {name:>16} | perftest | stride-perf | ratio |")?;
        writeln!(f, "|-----------------:|---------:|------------:|------:|")?;
        for (size, rounds) in &self.rounds {
            let of = |which: usize| measure::middle(rounds.iter().map(|pair| pair[which]).collect());
            let ahead = |&[theirs, ours]: &[f64; 2]| if self.test.is_latency() { theirs / ours } else { ours / theirs };
            let ratio = measure::middle(rounds.iter().map(ahead).collect());
            writeln!(f, "| {size:16} | {:8.3} | {:11.3} | {ratio:5.2} |", of(0), of(1))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stride_perf::stats::{Bandwidth, Figures};

    use super::*;

    #[test]
    fn the_ratio_is_the_median_of_those_of_the_rounds() {
        let row =
            |messages| Row::new(1000, Figures::Bandwidth(Bandwidth { messages, seconds: 8.0, ..Bandwidth::default() }));
        let mut report = Report::new(Test::WriteBw);
        for [theirs, ours] in [[1_000_000, 3_000_000], [2_000_000, 1_000_000], [4_000_000, 4_000_000]] {
            report.add(true, &[row(ours)]);
            report.add(false, &[row(theirs)]);
            report.end_turn();
        }
        let text = report.to_string();
        let line = text.lines().last().unwrap();
        assert_eq!(
            line.split(['|', ' ']).filter(|word| !word.is_empty()).collect::<Vec<_>>(),
            ["1000", "2.000", "3.000", "1.00"],
            "{line}"
        );
    }

    #[test]
    fn a_size_that_one_lacks_is_left_out() {
        let row = Row::new(2, Figures::Bandwidth(Bandwidth { messages: 1, seconds: 1.0, ..Bandwidth::default() }));
        let mut report = Report::new(Test::WriteBw);
        report.add(true, &[row]);
        report.end_turn();
        assert_eq!(report.to_string().lines().count(), 2);
    }
}
