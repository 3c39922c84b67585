//! A progress bar on the terminal.

use std::cell::RefCell;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use crate::report;
use crate::stats::{Interval, Seen};

/// Number of characters in a full bar.
const WIDTH: usize = 30;

/// Minimum time between two updates of the bar.
const PAUSE: Duration = Duration::from_millis(50);

/// A bar below the table, which is erased while a row is printed. `None` if standard error is not a terminal.
#[derive(Debug)]
pub(super) struct Progress(Option<RefCell<Bar>>);

/// The contents of the line on the terminal.
#[derive(Debug, Default)]
struct Bar {
    size: String,
    done: f64,
    speed: String,
    /// Time of the last update. `None` if the bar is not visible, for example because the program waits for a server.
    drawn: Option<Instant>,
}

impl Bar {
    fn line(&self) -> String {
        let done = self.done.clamp(0.0, 1.0);
        let full = (done * WIDTH as f64) as usize;
        let (full, rest) = ("█".repeat(full), "░".repeat(WIDTH - full));
        format!("{} [{full}{rest}] {:.0} %  {}", self.size, (done * 100.0).floor(), self.speed)
    }

    fn draw(&mut self) {
        self.drawn = Some(Instant::now());
        // The line is cut at the width of the terminal, because a wrapped line could not be erased.
        let line: String = self.line().chars().take(report::columns().saturating_sub(1)).collect();
        // Ignores errors, because the terminal may have been closed.
        let _ = write!(stderr(), "\r\x1b[2K{line}").and_then(|()| stderr().flush());
    }

    fn erase(&self) {
        if self.drawn.is_some() {
            let _ = write!(stderr(), "\r\x1b[2K").and_then(|()| stderr().flush());
        }
    }
}

impl Progress {
    pub(super) fn new(is_enabled: bool) -> Self {
        Self((is_enabled && stderr().is_terminal()).then(RefCell::default))
    }

    /// Shows which fraction of a size has been measured.
    pub(super) fn show(&self, size: u64, done: f64) {
        if let Some(bar) = &self.0 {
            let mut bar = bar.borrow_mut();
            (bar.size, bar.done) = (report::bytes(size), done);
            if bar.drawn.is_none_or(|last| last.elapsed() >= PAUSE) {
                bar.draw();
            }
        }
    }

    /// Shows the figures of an interval.
    pub(super) fn show_interval(&self, size: u64, interval: &Interval) {
        if let Some(bar) = &self.0 {
            bar.borrow_mut().speed = line(size, interval);
        }
    }

    /// Removes the figures of the last interval, after a size has been completed.
    pub(super) fn forget(&self) {
        if let Some(bar) = &self.0 {
            bar.borrow_mut().speed.clear();
        }
    }

    /// Erases the bar before `print` runs, and draws it again afterwards.
    pub(super) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        let Some(bar) = &self.0 else { return print() };
        bar.borrow().erase();
        let printed = print();
        let mut bar = bar.borrow_mut();
        if bar.drawn.is_some() {
            bar.draw();
        }
        printed
    }

    /// Erases the bar for good.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.0 {
            bar.borrow().erase();
            bar.borrow_mut().drawn = None;
        }
    }
}

/// Formats an interval in one line.
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
    fn bar_shows_the_completed_fraction() {
        let of = |done| Bar { size: "4 KiB".to_owned(), done, ..Bar::default() }.line();
        assert_eq!(of(0.0), format!("4 KiB [{}] 0 %  ", "░".repeat(30)));
        assert_eq!(of(0.505), format!("4 KiB [{}{}] 50 %  ", "█".repeat(15), "░".repeat(15)));
        assert_eq!(of(7.0), format!("4 KiB [{}] 100 %  ", "█".repeat(30)));
    }

    #[test]
    fn interval_is_formatted_in_a_line() {
        let of = |seen| line(1000, &Interval { start: 2.0, end: 4.0, seen });
        assert_eq!(of(Seen::Bandwidth { messages: 5_000_000 }), "20.000 Gb/s  2.500 Mmsg/s");
        let times = Seen::Latency { samples: 5, min: 900.0, mean: 1234.5, max: 1e6 };
        assert_eq!(of(times), "min 0.900  mean 1.234  max 1000.000 us");
    }
}
