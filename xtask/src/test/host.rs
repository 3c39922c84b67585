//! The rings that need nothing: `cargo test` over the workspace, on this machine.

use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result};

use super::Finished;
use super::report::State;
use super::summary::{Results, Scanner};
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
    let (passed, results) = with_second_try(&command, &mut std::io::stdout())?;
    let state = match passed {
        true if results.passed == 0 => State::Failed("no test ran".to_owned()),
        true => State::Passed,
        false => State::Failed("cargo test --workspace".to_owned()),
    };
    Ok(Finished { results, state, note })
}

/// So many tests that fail may be unlucky; more are not.
pub(crate) const UNLUCKY: usize = 3;

/// Runs tests as `command` makes it. What fails is tried once more, alone: a test that has to do with time or with other processes may
/// fail on a machine that others keep busy. One that passes then is told of at the end.
pub(crate) fn with_second_try(command: &dyn Fn() -> Command, out: &mut dyn Write) -> Result<(bool, Results)> {
    let (status, mut results) = copy(command(), out)?;
    let failed = results.failures.len();
    if status.success() || results.broken || failed as u64 != results.failed || !(1..=UNLUCKY).contains(&failed) {
        return Ok((status.success(), results));
    }
    let names: Vec<_> = results.failures.iter().map(|failure| failure.test.clone()).collect();
    writeln!(out, "\nonce more, alone: {}", names.join(" "))?;
    let mut again = command();
    if !again.get_args().any(|word| word == "--") {
        again.arg("--");
    }
    again.args(["--test-threads=1", "--exact"]).args(&names);
    let (status, second) = copy(again, out)?;
    let passed = status.success() && second.passed >= failed as u64;
    if passed {
        results.forgive();
    }
    Ok((passed, results))
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

    /// A runner whose test fails, and is as `alone` has it when it is named.
    fn tried(first: &str, alone: &str) -> (bool, Results) {
        let script = format!(
            "if [ \"$*\" = '-- --test-threads=1 --exact t' ]; then {alone}; fi\n\
             printf 'Running p\\nfailures:\\n\\nfailures:\\n    t\\ntest result: FAILED. 4 passed; 1 failed;\\n'\n{first}"
        );
        let command = || {
            let mut command = Command::new("sh");
            command.args(["-c", &script, "sh"]);
            command
        };
        with_second_try(&command, &mut std::io::sink()).unwrap()
    }

    const PASSES: &str = "printf 'Running p\\ntest result: ok. 1 passed; 0 failed;\\n'; exit 0";

    #[test]
    fn what_fails_is_tried_once_more_alone() {
        let (passed, results) = tried("exit 101", PASSES);
        assert!(passed);
        assert_eq!((results.passed, results.failed, results.unsteady.len()), (5, 0, 1));
        for alone in ["exit 101", "printf 'Running p\\ntest result: ok. 0 passed; 0 failed;\\n'; exit 0"] {
            let (passed, results) = tried("exit 101", alone);
            assert!(!passed);
            assert_eq!((results.passed, results.failed, results.failures.len()), (4, 1, 1));
        }
    }

    #[test]
    fn what_ends_otherwise_is_not_tried_again() {
        let told = "echo \"  process didn't exit successfully: p (exit status: 66)\"; exit 101";
        let (passed, results) = tried(told, PASSES);
        assert!(!passed && results.unsteady.is_empty());
        let more = "printf 'Running q\\ntest result: FAILED. 0 passed; 9 failed;\\n'; exit 101";
        assert!(!tried(more, PASSES).0, "nine of which no name is known");
    }
}
