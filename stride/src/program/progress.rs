//! How far a step is, and how fast it goes, on a terminal.

use std::cell::OnceCell;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::report;
use crate::stats::{Interval, Seen};

/// So many steps has the bar.
const STEPS: u64 = 1000;

/// A bar below the table, which goes when a row comes; nothing where standard error is no terminal.
#[derive(Debug)]
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    /// It stands there. A server may have to be waited for before.
    has_begun: OnceCell<()>,
}

impl Progress {
    pub(super) fn new(is_wanted: bool) -> Self {
        let none = Self { bar: None, has_begun: OnceCell::new() };
        let style = ProgressStyle::with_template("{msg} [{bar:30}] {percent} %  {prefix}").ok();
        let Some(style) = style.filter(|_| is_wanted && stderr().is_terminal()) else { return none };
        Self { bar: Some(ProgressBar::new(STEPS).with_style(style)), ..none }
    }

    /// So much of a size is done, of one.
    pub(super) fn show(&self, size: u64, done: f64) {
        if let Some(bar) = &self.bar {
            self.has_begun.get_or_init(|| bar.enable_steady_tick(Duration::from_millis(200)));
            bar.set_message(report::bytes(size));
            bar.set_position((done * STEPS as f64) as u64);
        }
    }

    /// So it goes at a size, since the last time.
    pub(super) fn tell(&self, size: u64, interval: &Interval) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(line(size, interval));
        }
    }

    /// A size is done: what was told is of that.
    pub(super) fn forget(&self) {
        if let Some(bar) = &self.bar {
            bar.set_prefix("");
        }
    }

    /// Has something printed without the bar in between.
    pub(super) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) if self.has_begun.get().is_some() => bar.suspend(print),
            _ => print(),
        }
    }

    /// It goes.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// An interval in a few words.
fn line(size: u64, interval: &Interval) -> String {
    match (interval.seen, interval.rates(size)) {
        (Seen::Latency { min, mean, max, .. }, _) => {
            let [min, mean, max] = [min, mean, max].map(|time| report::fixed(time / 1000.0, 9, 3));
            format!("min {min}  mean {mean}  max {max} us")
        }
        (Seen::Bandwidth { .. }, rates) => rates.map_or_else(String::new, |rates| {
            let [bits, rate] = [rates.gigabits_per_second, rates.messages_per_second / 1e6];
            format!("{} Gb/s  {} Mmsg/s", report::fixed(bits, 9, 3), report::fixed(rate, 9, 3))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_is_told_in_a_line() {
        let of = |seen| line(1000, &Interval { start: 2.0, end: 4.0, seen });
        assert_eq!(of(Seen::Bandwidth { messages: 5_000_000 }), "20.000 Gb/s  2.500 Mmsg/s");
        let times = Seen::Latency { samples: 5, min: 900.0, mean: 1234.5, max: 1e6 };
        assert_eq!(of(times), "min 0.900  mean 1.234  max 1000.000 us");
    }
}
