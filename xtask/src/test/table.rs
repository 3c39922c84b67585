//! The closing table: each step and ring with its results and durations, the failures above it, the sums in the last
//! line.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::results::Results;
use super::running::End;
use crate::repo;

/// The outcome of a step or ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Passed,
    /// A test failed, or a required part could not run.
    Failed(String),
    /// Did not run, for this reason.
    DidNotRun(String),
}

/// The results of a ring.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    pub(crate) results: Results,
    pub(crate) state: State,
    pub(crate) note: Option<String>,
}

impl Finished {
    /// The ring cannot run here.
    pub(crate) fn did_not_run(reason: impl Into<String>) -> Self {
        Self { state: State::DidNotRun(reason.into()), ..Self::default() }
    }

    /// Adds the outcome of a test program or of cargo.
    pub(crate) fn add(&mut self, title: &str, (end, mut results): (End, Results)) {
        // libtest does not print the program's name.
        for failure in results.failures.iter_mut().filter(|failure| failure.starts_with('\n')) {
            failure.insert_str(0, title);
        }
        self.results.add(&results);
        if !end.is_success() {
            self.fail(format!("{title}: {end}"));
        }
    }

    /// Adds another part of the same ring.
    pub(crate) fn merge(&mut self, part: Self) {
        self.results.add(&part.results);
        match part.state {
            State::Failed(fault) => self.fail(fault),
            State::DidNotRun(reason) => self.note = Some(reason),
            State::Passed => {}
        }
    }

    /// Marks the ring as failed; only the first reason is shown.
    pub(crate) fn fail(&mut self, fault: String) {
        if !matches!(self.state, State::Failed(_)) {
            self.state = State::Failed(fault);
        }
    }

    /// Concludes the ring: without tests it has failed.
    pub(crate) fn or_nothing_ran(mut self) -> Self {
        if self.state == State::Passed && self.results.passed + self.results.failed == 0 {
            self.state = State::Failed("no test ran".to_owned());
        }
        self
    }
}

/// One line of the table.
#[derive(Debug, Default)]
pub(crate) struct Row {
    /// The name of the step or ring.
    pub(crate) name: String,
    pub(crate) results: Results,
    pub(crate) state: State,
    /// A remark for the reader.
    pub(crate) note: Option<String>,
    /// The build time.
    pub(crate) build: Duration,
    /// The time besides the build.
    pub(crate) run: Duration,
    /// The processor time of the programs that ran, in user and kernel mode.
    pub(crate) processor: Duration,
    /// Whether the ring runs the device tests, which the other rings leave out.
    pub(crate) runs_device_tests: bool,
}

impl Row {
    /// Runs a step or ring and measures its time.
    pub(crate) fn timed(name: &str, run: impl FnOnce() -> Result<Finished>) -> Self {
        let (started, built, used) = (Instant::now(), repo::built_for(), repo::processor_time());
        let failed = |error| Finished { state: State::Failed(format!("{error:#}")), ..Finished::default() };
        let Finished { results, state, note } = run().unwrap_or_else(failed);
        let build = repo::built_for().saturating_sub(built);
        let run = started.elapsed().saturating_sub(build);
        let processor = repo::processor_time().saturating_sub(used);
        let [built_for, ran_for, used] = [build, run, processor].map(|time| time.as_secs_f64());
        println!("== {name}: built for {built_for:.1} s, ran for {ran_for:.1} s, processor time {used:.1} s ==");
        Self { name: name.to_owned(), results, state, note, build, run, processor, runs_device_tests: false }
    }

    /// Adds a later part of the same ring.
    pub(crate) fn and(mut self, later: Self) -> Self {
        self.results.add(&later.results);
        if !matches!(self.state, State::Failed(_)) {
            self.state = later.state;
        }
        self.note = self.note.or(later.note);
        self.build += later.build;
        self.run += later.run;
        self.processor += later.processor;
        self
    }

    /// A short outcome.
    fn outcome(&self) -> String {
        match &self.state {
            State::Passed => "passed".to_owned(),
            State::Failed(reason) => format!("FAILED: {reason}"),
            State::DidNotRun(reason) => format!("did not run: {reason}"),
        }
    }
}

/// Prints the failures, the table and, as the last line, the sums of the tests that ran now. Writes the table to
/// `target/ci/table.txt`.
///
/// Tests that the other rings leave to a device ring do not count as skipped if it ran them.
pub(crate) fn print(root: &Path, rows: &[Row]) -> Result<ExitCode> {
    for row in rows {
        for failure in &row.results.failures {
            println!("\nFAILED ({}): {failure}", row.name);
        }
    }
    let text = text(rows);
    print!("\n{text}");
    let folder = repo::target_folder(root)?.join("ci");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(folder.join("table.txt"), text).context("cannot write target/ci/table.txt")?;
    let failed = rows.iter().any(|row| matches!(row.state, State::Failed(_)));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn text(rows: &[Row]) -> String {
    let on_device =
        rows.iter().filter(|row| row.runs_device_tests).map(|row| row.results.for_device).max().unwrap_or(0);
    let mut total = Results::default();
    let mut text = format!(
        "{:<15} {:>7} {:>7} {:>8} {:>8} {:>8} {:>8}\n",
        "step or ring", "passed", "failed", "skipped", "build s", "run s", "CPU s"
    );
    for row in rows {
        let mut results = row.results.clone();
        // A ring that failed without a failed test counts as one failure.
        if matches!(row.state, State::Failed(_)) {
            results.failed = results.failed.max(1);
        }
        if !row.runs_device_tests {
            results.skipped = results.skipped.saturating_sub(results.for_device.min(on_device));
        }
        total.add(&results);
        let [build, run, processor] = [row.build, row.run, row.processor].map(|time| time.as_secs_f64());
        let Results { passed, failed, skipped, .. } = results;
        let outcome = row.outcome().replace('\n', "\n    ");
        text.push_str(&format!(
            "{:<15} {passed:>7} {failed:>7} {skipped:>8} {build:>8.1} {run:>8.1} {processor:>8.1}  {outcome}\n",
            row.name
        ));
        if let Some(note) = &row.note {
            text.push_str(&format!("    note: {}\n", note.replace('\n', "\n    ")));
        }
    }
    let sum = |time: fn(&Row) -> Duration| rows.iter().map(time).sum::<Duration>().as_secs_f64();
    let [build, run, processor] = [sum(|row| row.build), sum(|row| row.run), sum(|row| row.processor)];
    text.push_str(&format!("{:<15} {:>7} {:>7} {:>8} {build:>8.1} {run:>8.1} {processor:>8.1}\n", "all", "", "", ""));
    text + &format!("\n{} passed, {} failed, {} skipped\n", total.passed, total.failed, total.skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timed_out_program_is_named_in_the_table() {
        let mut finished = Finished::default();
        let results = Results { failed: 1, failures: vec!["\n    its last line".into()], ..Results::default() };
        finished.add("nic: tests/slow.rs", (End::TimedOut(Duration::from_secs(9)), results));
        assert_eq!(finished.results.failures, ["nic: tests/slow.rs\n    its last line"]);
        let row = Row { state: finished.state, ..Row::default() };
        assert_eq!(row.outcome(), "FAILED: nic: tests/slow.rs: timed out: printed nothing for 9 s");
    }

    #[test]
    fn ring_in_two_parts_fails_if_either_part_fails() {
        let part = |passed, state| Row { results: Results { passed, ..Results::default() }, state, ..Row::default() };
        let failed = || State::Failed("a test".into());
        for (first, second) in [(failed(), State::Passed), (State::Passed, failed())] {
            let row = part(2, first).and(part(3, second));
            assert_eq!((row.outcome().as_str(), row.results.passed), ("FAILED: a test", 5));
        }
        assert_eq!(part(2, State::Passed).and(part(3, State::Passed)).state, State::Passed);
    }

    #[test]
    fn last_line_sums_the_tests() {
        let row =
            |name: &str, results: Results, state: State| Row { name: name.into(), results, state, ..Row::default() };
        let pure = Results { passed: 5, skipped: 3, for_device: 2, ..Results::default() };
        let mut rows = vec![
            row("pure", pure, State::Passed),
            row("softroce", Results::default(), State::Failed("no test ran".into())),
            row("gpu", Results::default(), State::DidNotRun("there is no driver".into())),
        ];
        let first = text(&rows);
        assert!(first.ends_with("\n5 passed, 1 failed, 3 skipped\n"), "{first}");
        assert!(first.contains("did not run: there"), "{first}");
        rows[1].runs_device_tests = true;
        rows[1].results.passed = 9;
        rows[1].results.for_device = 1;
        assert!(text(&rows).ends_with("\n14 passed, 1 failed, 2 skipped\n"));
        rows[1].results.for_device = 2;
        assert!(text(&rows).ends_with("\n14 passed, 1 failed, 1 skipped\n"));
    }
}
