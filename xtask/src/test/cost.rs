//! The cost ring: what posting and polling cost in instructions, beside the same loops in C.

use std::path::Path;

use anyhow::Result;

use super::Finished;
use super::host;
use super::report::State;
use crate::packages::{self, Install};
use crate::repo;

/// The package of the measurement and of its test.
const PACKAGE: &str = "sideway-zero-cost";

/// Runs the test of the ratios, with optimisation.
pub(crate) fn run(root: &Path) -> Result<Finished> {
    let needs: &[&[packages::Need]] = &[packages::C_TESTS, packages::COST];
    if let Err(error) = packages::require("counting instructions", needs, Install::InCiOrAsRoot) {
        return Ok(Finished::did_not_run(format!("{error:#}")));
    }
    let mut command = repo::cargo(root);
    command.args(["test", "--release", "--package", PACKAGE, "--no-fail-fast"]);
    // The loops by the clock too, each once.
    command.args(["--lib", "--bins", "--tests", "--benches"]);
    // All that it needs is there: that it did not run would be a fault.
    command.env("SIDEWAY_REQUIRE_C_TESTS", "1");
    let (status, results) = host::stream(command)?;
    let state = match status.success() {
        true if results.passed == 0 => State::Failed("no test ran".to_owned()),
        true => State::Passed,
        false => State::Failed(format!("cargo test --release --package {PACKAGE}: {status}")),
    };
    Ok(Finished { results, state, note: None })
}
