//! The miri ring: tests of the pure and embedded rings, in an interpreter that sees undefined behaviour.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};

use super::Finished;
use super::host;
use super::report::State;
use super::summary::Counts;
use crate::packages::Install;
use crate::repo;

/// What is run: the packages' own tests, and the programs whose fake drivers live in this process.
const RUNS: &[&[&str]] = &[
    // The table of transitions is safe code, and its rows take minutes.
    &["--package", "sideway", "--lib", "--", "--skip", "transition::table"],
    &["--package", "rdma-mummy-sys", "--lib"],
    &["--package", "softrnic", "--lib"],
    &["--package", "sideway-tests", "--test", "recording_verbs", "--test", "recording_completion"],
    &["--package", "sideway-tests", "--test", "recording_requests", "--test", "holes"],
    &["--package", "sideway-tests", "--test", "recording_rdmacm_provider", "--test", "recording_cm"],
];

/// The tests may read the clock and the environment; what a fake driver made is there until the process ends; C has addresses
/// in integers.
const FLAGS: &str = "-Zmiri-disable-isolation -Zmiri-ignore-leaks -Zmiri-permissive-provenance";

/// What rustup installs.
const INSTALL: &[&str] =
    &["toolchain", "install", "nightly", "--no-self-update", "--profile", "minimal", "--component", "miri,rust-src"];

/// Of the toolchain: what the interpreter builds the standard library from.
const SOURCES: &str = "lib/rustlib/src/rust/library/Cargo.toml";

/// Runs each in turn, with the installed nightly toolchain or, in CI and for root, with one installed for this.
pub(crate) fn run(root: &Path) -> Result<Finished> {
    if let Err(error) = require(root) {
        return Ok(Finished::did_not_run(format!("{error:#}")));
    }
    let mut counts = Counts::default();
    let mut fault = None;
    for words in RUNS {
        let mut command = repo::nightly_cargo(root);
        command.args(["miri", "test", "--no-fail-fast"]).args(*words).env_remove("SIDEWAY_TEST_DEVICE");
        let more = std::env::var("MIRIFLAGS").unwrap_or_default();
        command.env("MIRIFLAGS", format!("{FLAGS} {more}")).env("PROPTEST_CASES", "4");
        let (status, found) = host::stream(command)?;
        counts.add(&found);
        if !status.success() {
            fault = Some(format!("cargo miri test {}: {status}", words.join(" ")));
        } else if found.passed == 0 {
            fault = Some(format!("cargo miri test {}: no test ran", words.join(" ")));
        }
    }
    let state = fault.map_or(State::Passed, State::Failed);
    Ok(Finished { counts, state, note: None })
}

/// Makes sure that there is a nightly toolchain with Miri, installing it where that is allowed.
fn require(root: &Path) -> Result<()> {
    if is_there(root) {
        return Ok(());
    }
    let advice = || format!("Miri needs a nightly toolchain: rustup {}", INSTALL.join(" "));
    ensure!(Install::InCiOrAsRoot.allowed(), advice());
    let status = Command::new("rustup").args(INSTALL).status().with_context(advice)?;
    ensure!(status.success() && is_there(root), "rustup ended with {status}; {}", advice());
    Ok(())
}

fn is_there(root: &Path) -> bool {
    let sources = |output: Output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).join(SOURCES).exists();
    let mut sysroot = Command::new("rustc");
    sysroot.args(["+nightly", "--print", "sysroot"]).env_remove("RUSTUP_TOOLCHAIN").env_remove("LD_LIBRARY_PATH");
    let mut version = repo::nightly_cargo(root);
    version.args(["miri", "--version"]);
    version.output().is_ok_and(|output| output.status.success()) && sysroot.output().is_ok_and(sources)
}
