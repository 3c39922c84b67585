//! The rings that need nothing: `cargo test` over the workspace, on this machine.

use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result};

use super::Finished;
use super::report::State;
use super::summary::{DOCUMENTS, Failure, Results, Scanner};
use crate::packages::{self, Install};
use crate::repo;

/// Runs all tests of the workspace; those that want a device of the kernel are ignored here, and the others
/// have one of softrnic.
pub(crate) fn run(root: &Path) -> Result<Finished> {
    let c_tests = packages::require("comparing with the C headers", &[packages::C_TESTS], Install::InCiOrAsRoot);
    // Elsewhere the headers may be of another release than the bindings: the tests say so.
    let requires_c_tests = c_tests.is_ok() && packages::in_ci();
    let note = match c_tests {
        Ok(()) => None,
        Err(error) if super::is_strict() => return Err(error),
        Err(error) => Some(error.to_string()),
    };
    let command = || {
        let mut command = repo::cargo(root);
        command.args(["test", "--workspace", "--no-fail-fast"]);
        // The rings are what they are called: these two never touch a device of the machine.
        command.env_remove("SIDEWAY_TEST_DEVICE");
        if requires_c_tests {
            command.env("SIDEWAY_REQUIRE_C_TESTS", "1");
        }
        command
    };
    let (status, results) = with_second_try(&command, &mut std::io::stdout())?;
    let state = match status.success() {
        true if results.passed == 0 => State::Failed("no test ran".to_owned()),
        true => State::Passed,
        false => State::Failed(format!("cargo test: {status}")),
    };
    Ok(Finished { results, state, note })
}

/// So many tests that fail may be unlucky; more are not.
const UNLUCKY: usize = 3;

/// Runs tests as `command` makes it. What fails is tried once more, alone: a test that has to do with time or with other processes may
/// fail on a machine that others keep busy. One that passes then is told of at the end.
fn with_second_try(command: &dyn Fn() -> Command, out: &mut dyn Write) -> Result<(ExitStatus, Results)> {
    let (status, mut results) = copy(command(), out)?;
    if status.success() || !may_be_unlucky(&results) {
        return Ok((status, results));
    }
    let names: Vec<_> = results.failures.iter().map(|failure| failure.test.clone()).collect();
    writeln!(out, "\nonce more, alone: {}", names.join(" "))?;
    let mut again = command();
    again.args(["--", "--test-threads=1", "--exact"]).args(&names);
    let (second, found) = copy(again, out)?;
    if !second.success() || found.passed < names.len() as u64 {
        return Ok((status, results));
    }
    results.forgive();
    Ok((second, results))
}

/// Whether all that went wrong are few tests that failed as a test does, on what they try each time. An example that stands in a comment is found
/// by no name.
fn may_be_unlucky(results: &Results) -> bool {
    let failures = &results.failures;
    let may_be = |failure: &Failure| !failure.is_by_chance && !failure.program.starts_with(DOCUMENTS);
    let is_all_known = !results.broken && failures.len() as u64 == results.failed;
    is_all_known && (1..=UNLUCKY).contains(&failures.len()) && failures.iter().all(may_be)
}

/// Runs a test runner; all it prints goes to our standard output as it comes, in the order in which it was printed.
pub(crate) fn stream(command: Command) -> Result<(ExitStatus, Results)> {
    copy(command, &mut std::io::stdout())
}

/// The same, with what it prints going elsewhere.
pub(crate) fn copy(mut command: Command, out: &mut dyn Write) -> Result<(ExitStatus, Results)> {
    // One pipe for both streams: cargo names each test program on standard error, its results come on standard output.
    let (mut reader, writer) = std::io::pipe().context("cannot make a pipe")?;
    command.stdin(std::process::Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    if std::io::stdout().is_terminal() && std::env::var_os("CARGO_TERM_COLOR").is_none() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let mut child = command.spawn().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    // The command holds the writing ends; without it the pipe ends with the child.
    drop(command);

    let mut scanner = Scanner::default();
    let mut buffer = [0; 16 * 1024];
    loop {
        let length = reader.read(&mut buffer).context("cannot read what the tests print")?;
        if length == 0 {
            break;
        }
        scanner.feed(&buffer[..length]);
        out.write_all(&buffer[..length])?;
        out.flush()?;
    }
    Ok((child.wait()?, scanner.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A runner of which `fails` ends after a test that failed, and which does `alone` where that is named.
    fn tried(fails: &str, alone: &str) -> (bool, Results) {
        let script = format!("if [ \"$*\" = '-- --test-threads=1 --exact t' ]; then {alone}; fi\n{fails}");
        let command = || {
            let mut command = Command::new("sh");
            command.args(["-c", &script, "sh"]);
            command
        };
        let (status, results) = with_second_try(&command, &mut std::io::sink()).unwrap();
        (status.success(), results)
    }

    /// What is printed of a program with one test that failed, and of four that did not.
    fn program(name: &str, story: &str) -> String {
        format!(
            "printf 'Running {name} (p)\\nfailures:\\n\\n---- t stdout ----\\n{story}\\nfailures:\\n    t\\n\\
             test result: FAILED. 4 passed; 1 failed;\\n'; "
        )
    }

    const PASSES: &str = "printf 'Running p\\ntest result: ok. 1 passed; 0 failed;\\n'; exit 0";
    const FAILS: &str = "printf 'Running p\\ntest result: FAILED. 0 passed; 1 failed;\\n'; exit 101";

    #[test]
    fn what_fails_is_tried_once_more_alone() {
        let fails = program("p", "too late") + "exit 101";
        let (passed, results) = tried(&fails, PASSES);
        assert!(passed);
        assert_eq!((results.passed, results.failed, results.unsteady.len()), (5, 0, 1));
        for alone in [FAILS, "printf 'Running p\\ntest result: ok. 0 passed; 0 failed;\\n'; exit 0"] {
            let (passed, results) = tried(&fails, alone);
            assert!(!passed);
            assert_eq!((results.passed, results.failed, results.failures.len()), (4, 1, 1));
        }
    }

    #[test]
    fn what_is_no_bad_luck_is_not_tried_again() {
        let told = "echo \"  process didn't exit successfully: p (exit status: 66)\"; ";
        let unnamed = "printf 'Running q\\ntest result: FAILED. 0 passed; 1 failed;\\n'; ";
        let many = ["p", "q", "r", "s"].map(|name| program(name, "too late")).concat();
        let by_chance = program("p", "minimal failing input: x = 3\\nand more");
        let document = program("p", "").replace("Running", "Doc-tests");
        for fails in [program("p", "") + told, program("p", "") + unnamed, many, by_chance, document] {
            let (passed, results) = tried(&(fails.clone() + "exit 101"), PASSES);
            assert!(!passed && results.unsteady.is_empty() && results.failed > 0, "{fails}");
        }
    }
}
