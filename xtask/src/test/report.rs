//! The table at the end, and the closing line.

use std::process::ExitCode;
use std::time::Duration;

use super::summary::Counts;

/// How a ring ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// All its tests passed.
    Passed,
    /// A test failed, or the ring should have run and could not.
    Failed(String),
    /// It did not run, for this reason.
    DidNotRun(String),
}

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    /// The ring's name.
    pub(crate) name: &'static str,
    /// Its results.
    pub(crate) counts: Counts,
    /// How it ended.
    pub(crate) state: State,
    /// What a reader should know besides.
    pub(crate) note: Option<String>,
    /// How long it took.
    pub(crate) time: Duration,
}

impl Row {
    /// Whether tests of this ring ran.
    pub(crate) fn ran(&self) -> bool {
        self.counts.passed + self.counts.failed > 0
    }

    /// Whether this ring runs the device tests, which the others leave out.
    pub(crate) fn is_device_ring(&self) -> bool {
        matches!(self.name, "softroce" | "hardware")
    }
}

/// Prints the table and, as the last line, the sums. The exit code is that of the whole.
///
/// When a device ring ran, the tests that the other rings leave to it are not counted as skipped there.
pub(crate) fn print(rows: &[Row], device_ring_ran: bool) -> ExitCode {
    println!("\n{:<16} {:>7} {:>7} {:>8} {:>8}", "ring", "passed", "failed", "skipped", "time");
    let total = total(rows, device_ring_ran);
    for row in rows {
        if let State::DidNotRun(reason) = &row.state {
            println!("{:<16} did not run: {}", row.name, indented(reason));
            continue;
        }
        let counts = counts(row, device_ring_ran);
        print!("{:<16} {:>7} {:>7} {:>8}", row.name, counts.passed, counts.failed, counts.skipped);
        print!(" {:>6.1} s", row.time.as_secs_f64());
        match &row.state {
            State::Failed(reason) => println!("  FAILED: {}", indented(reason)),
            _ => println!(),
        }
        if let Some(note) = &row.note {
            println!("{:<16} note: {}", "", indented(note));
        }
    }
    println!("\n{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    let failed = rows.iter().any(|row| matches!(row.state, State::Failed(_)));
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn total(rows: &[Row], device_ring_ran: bool) -> Counts {
    let mut total = Counts::default();
    for row in rows {
        total.add(&counts(row, device_ring_ran));
    }
    total
}

/// The row's results as they are shown: a ring that failed without a failed test counts as one failure.
fn counts(row: &Row, device_ring_ran: bool) -> Counts {
    let mut counts = row.counts.clone();
    if matches!(row.state, State::Failed(_)) {
        counts.failed = counts.failed.max(1);
    }
    if device_ring_ran {
        counts.skipped -= counts.for_device;
        counts.for_device = 0;
    }
    counts
}

fn indented(text: &str) -> String {
    text.replace('\n', &format!("\n{:<16} ", ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, counts: Counts, state: State) -> Row {
        Row { name, counts, state, note: None, time: Duration::ZERO }
    }

    #[test]
    fn a_ring_that_failed_shows_in_the_sum() {
        let rows = [
            row("pure", Counts { passed: 5, failed: 0, skipped: 3, for_device: 2 }, State::Passed),
            row("softroce", Counts::default(), State::Failed("no test ran".into())),
            row("gpu", Counts::default(), State::DidNotRun("no tests".into())),
        ];
        assert_eq!(total(&rows, false), Counts { passed: 5, failed: 1, skipped: 3, for_device: 2 });
        assert_eq!(total(&rows, true), Counts { passed: 5, failed: 1, skipped: 1, for_device: 0 });
    }
}
