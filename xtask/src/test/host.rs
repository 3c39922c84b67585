//! The rings that need nothing: `cargo test` over the workspace, on this machine.

use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result};

use super::Finished;
use super::report::State;
use super::summary::{Counts, Scanner};
use crate::packages::{self, Install};
use crate::repo;

/// Runs all tests of the workspace; those that want a device of the kernel are ignored here, and the others
/// have one of softrnic.
pub(crate) fn run(root: &Path) -> Result<Finished> {
    let c_tests = packages::require("comparing with the C headers", &[packages::C_TESTS], Install::InCiOrAsRoot);
    let mut command = repo::cargo(root);
    command.args(["test", "--workspace", "--no-fail-fast"]);
    // The rings are what they are called: these two never touch a device of the machine.
    command.env_remove("SIDEWAY_TEST_DEVICE");
    let note = match c_tests {
        Ok(()) => {
            // Elsewhere the headers may be of another release than the bindings: the tests say so.
            if packages::in_ci() {
                command.env("SIDEWAY_REQUIRE_C_TESTS", "1");
            }
            None
        }
        Err(error) if super::is_strict() => return Err(error),
        Err(error) => Some(error.to_string()),
    };
    let (status, counts) = stream(command)?;
    let state = match status.success() {
        true if counts.passed == 0 => State::Failed("no test ran".to_owned()),
        true => State::Passed,
        false => State::Failed(format!("cargo test: {status}")),
    };
    Ok(Finished { counts, state, note })
}

/// Runs a test runner; all it prints goes to our standard output as it comes, in the order in which it was printed.
pub(crate) fn stream(command: Command) -> Result<(ExitStatus, Counts)> {
    copy(command, &mut std::io::stdout())
}

/// The same, with what it prints going elsewhere.
pub(crate) fn copy(mut command: Command, out: &mut dyn Write) -> Result<(ExitStatus, Counts)> {
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
