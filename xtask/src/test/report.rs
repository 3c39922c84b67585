//! The table at the end, and the closing line.

use std::process::ExitCode;
use std::time::Duration;

use super::summary::{Failure, Results};

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
    pub(crate) results: Results,
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
        self.results.passed + self.results.failed > 0
    }

    /// Whether this ring runs the device tests, which the others leave out.
    pub(crate) fn is_device_ring(&self) -> bool {
        matches!(self.name, "softroce" | "hardware")
    }
}

/// Prints what failed, the table and, as the last line, the sums. The exit code is that of the whole.
///
/// When a device ring ran, the tests that the other rings leave to it are not counted as skipped there.
pub(crate) fn print(rows: &[Row], device_ring_ran: bool) -> ExitCode {
    for row in rows {
        tell("FAILED", row.name, &row.results.failures);
        tell("unsteady, passed when tried again alone", row.name, &row.results.unsteady);
    }
    println!("\n{:<16} {:>7} {:>7} {:>8} {:>8}", "ring", "passed", "failed", "skipped", "time");
    let total = total(rows, device_ring_ran);
    for row in rows {
        if let State::DidNotRun(reason) = &row.state {
            println!("{:<16} did not run: {}", row.name, indented(reason));
            continue;
        }
        let results = results(row, device_ring_ran);
        print!("{:<16} {:>7} {:>7} {:>8}", row.name, results.passed, results.failed, results.skipped);
        print!(" {:>6.1} s", row.time.as_secs_f64());
        match &row.state {
            State::Failed(reason) => println!("  FAILED: {}", indented(reason)),
            _ => println!(),
        }
        for Failure { program, test, .. } in &row.results.unsteady {
            println!("{:<16} note: {program}: {test} passed only when tried again alone", "");
        }
        if let Some(note) = &row.note {
            println!("{:<16} note: {}", "", indented(note));
        }
    }
    println!("\n{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    let failed = rows.iter().any(|row| matches!(row.state, State::Failed(_)));
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Once more what has failed, which is far above by now.
fn tell(what: &str, ring: &str, failures: &[Failure]) {
    for failure in failures {
        println!("\n{what}: {} of {} ({ring})", failure.test, failure.program);
        for line in &failure.story {
            println!("    {line}");
        }
    }
}

fn total(rows: &[Row], device_ring_ran: bool) -> Results {
    let mut total = Results::default();
    for row in rows {
        total.add(&results(row, device_ring_ran));
    }
    total
}

/// The row's results as they are shown: a ring that failed without a failed test results as one failure.
fn results(row: &Row, device_ring_ran: bool) -> Results {
    let mut results = row.results.clone();
    if matches!(row.state, State::Failed(_)) {
        results.failed = results.failed.max(1);
    }
    if device_ring_ran {
        results.skipped -= results.for_device;
        results.for_device = 0;
    }
    results
}

fn indented(text: &str) -> String {
    text.replace('\n', &format!("\n{:<16} ", ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, results: Results, state: State) -> Row {
        Row { name, results, state, note: None, time: Duration::ZERO }
    }

    #[test]
    fn a_ring_that_failed_shows_in_the_sum() {
        let rows = [
            row("pure", Results { passed: 5, skipped: 3, for_device: 2, ..Results::default() }, State::Passed),
            row("softroce", Results::default(), State::Failed("no test ran".into())),
            row("gpu", Results::default(), State::DidNotRun("no tests".into())),
        ];
        let sum =
            |passed, failed, skipped, for_device| Results { passed, failed, skipped, for_device, ..Results::default() };
        assert_eq!(total(&rows, false), sum(5, 1, 3, 2));
        assert_eq!(total(&rows, true), sum(5, 1, 1, 0));
    }
}
