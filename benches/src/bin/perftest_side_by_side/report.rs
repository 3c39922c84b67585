//! The comparison of all runs.

use std::collections::BTreeMap;
use std::fmt;

use sideway_benches::measure;
use stride_perf::report::Row;

use super::test::Test;

/// The program of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Perftest,
    Stride,
    /// The second run of perftest.
    Control,
}

/// The results of all rounds.
#[derive(Debug)]
pub(crate) struct Report {
    test: Test,
    /// Messages posted together.
    post_list: u32,
    has_control: bool,
    /// Compares the best runs instead of the medians.
    is_best: bool,
    /// The current round, by [`Which`].
    turn: [BTreeMap<u64, f64>; 3],
    /// The results of each round by size; the third is NaN without a control.
    rounds: BTreeMap<u64, Vec<[f64; 3]>>,
}

impl Report {
    pub(crate) fn new(test: Test, post_list: u32, has_control: bool, is_best: bool) -> Self {
        Self { test, post_list, has_control, is_best, turn: Default::default(), rounds: BTreeMap::new() }
    }

    /// Adds the rows of one program.
    pub(crate) fn add(&mut self, which: Which, rows: &[Row]) {
        let figures = rows.iter().filter_map(|row| Some((row.size, figure(row)?)));
        self.turn[which as usize].extend(figures);
    }

    /// Ends a round, in which each program has run.
    pub(crate) fn end_turn(&mut self) {
        let [theirs, ours, again] = std::mem::take(&mut self.turn);
        for (size, theirs) in theirs {
            let again = if self.has_control { again.get(&size).copied() } else { Some(f64::NAN) };
            if let (Some(&ours), Some(again)) = (ours.get(&size), again) {
                self.rounds.entry(size).or_default().push([theirs, ours, again]);
            }
        }
    }
}

/// Gigabits per second, or the median in microseconds.
fn figure(row: &Row) -> Option<f64> {
    match row.latency() {
        Some(latency) => Some(latency.p50 / 1000.0),
        None => row.average().map(|rates| rates.gigabits_per_second),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if self.test.is_latency() { "us" } else { "Gb/s" };
        let list = if self.post_list > 1 { format!(" -l {}", self.post_list) } else { String::new() };
        let name = format!("{} {}{list}, {unit}", self.test.operation(), self.test.measure());
        let (head, rule) = if self.has_control { (" itself |", "-------:|") } else { ("", "") };
        writeln!(f, "| {name:>16} | perftest | stride-perf | ratio |{head}")?;
        writeln!(f, "|-----------------:|---------:|------------:|------:|{rule}")?;
        for (size, rounds) in &self.rounds {
            let of = |which: Which| {
                let all = rounds.iter().map(|all| all[which as usize]);
                match (self.is_best, self.test.is_latency()) {
                    (true, true) => all.fold(f64::INFINITY, f64::min),
                    (true, false) => all.fold(0.0, f64::max),
                    (false, _) => measure::middle(all.collect()),
                }
            };
            let ratio = |which: Which| {
                let ahead =
                    |theirs: f64, other: f64| if self.test.is_latency() { theirs / other } else { other / theirs };
                if self.is_best {
                    return ahead(of(Which::Perftest), of(which));
                }
                let each = rounds.iter().map(|all| ahead(all[Which::Perftest as usize], all[which as usize]));
                measure::middle(each.collect())
            };
            let [theirs, ours] = [Which::Perftest, Which::Stride].map(of);
            write!(f, "| {size:16} | {theirs:8.3} | {ours:11.3} | {:5.2} |", ratio(Which::Stride))?;
            if self.has_control {
                write!(f, " {:6.2} |", ratio(Which::Control))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stride_perf::stats::{Bandwidth, Figures};

    use super::*;

    #[test]
    fn the_ratio_is_the_median_of_the_ratios_of_all_rounds() {
        let row = |messages: u64| {
            let messages = messages * 100_000;
            Row::new(1000, Figures::Bandwidth(Bandwidth { messages, seconds: 8.0, ..Bandwidth::default() }))
        };
        let words = |has_control| {
            let mut report = Report::new(Test::WriteBw, 1, has_control, false);
            for [theirs, ours, again] in [[10, 30, 9], [20, 10, 18], [40, 40, 36]] {
                report.add(Which::Stride, &[row(ours)]);
                report.add(Which::Perftest, &[row(theirs)]);
                if has_control {
                    report.add(Which::Control, &[row(again)]);
                }
                report.end_turn();
            }
            let text = report.to_string();
            let bars = text.lines().map(|line| line.matches('|').count()).collect::<Vec<_>>();
            assert!(bars.iter().all(|count| *count == bars[0]), "{text}");
            let words = text.lines().last().unwrap().split(['|', ' ']).filter(|word| !word.is_empty());
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(words(false), ["1000", "2.000", "3.000", "1.00"]);
        assert_eq!(words(true), ["1000", "2.000", "3.000", "1.00", "0.90"]);
    }

    #[test]
    fn a_size_that_one_program_lacks_is_left_out() {
        let row = Row::new(2, Figures::Bandwidth(Bandwidth { messages: 1, seconds: 1.0, ..Bandwidth::default() }));
        let mut report = Report::new(Test::WriteBw, 1, false, false);
        report.add(Which::Stride, &[row]);
        report.end_turn();
        assert_eq!(report.to_string().lines().count(), 2);
    }
}
