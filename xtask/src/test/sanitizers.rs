//! The sanitizers ring: tests that Miri cannot run, compiled with AddressSanitizer. It sees memory that is used outside of an
//! allocation or after its end, and memory that is lost at the end of a test program.
//!
//! ThreadSanitizer is not here: it takes every lock of a standard library that was not built with it for none, and knows no fences.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Finished;
use super::host;
use super::report::State;
use super::summary::Counts;
use crate::repo;

/// What is run of each package, its own tests where no program is named: the software NIC, also with other processes, connections and
/// threads; and sideway on it. Not `gates`, `notes` and `rings` of softrnic: their model has stacks of its own.
const RUNS: &[(&str, &[&str])] = &[
    ("softrnic", &[]),
    ("softrnic", &["connected", "fork", "kills", "many", "processes", "rdmacm", "signals", "threads"]),
    ("sideway-tests", &["on_device_completions", "on_device_errors", "on_device_srq", "on_device_windows"]),
];

/// What one generation after `fork` has is not freed, and this test makes several in one process.
const LEFT_OUT: &str = "a_generation_has_one_and_another_generation_another";

const FLAGS: &str = "-Zsanitizer=address";

/// Runs each in turn, with the installed nightly toolchain.
pub(crate) fn run(root: &Path) -> Result<Finished> {
    let host = match require() {
        Ok(host) => host,
        Err(error) => return Ok(Finished::did_not_run(format!("{error:#}"))),
    };
    let mut counts = Counts::default();
    let mut fault = None;
    for (package, programs) in RUNS {
        let mut words = vec!["--package", package];
        words.extend(programs.iter().flat_map(|program| ["--test", program]));
        if programs.is_empty() {
            words.push("--lib");
        }
        words.extend(["--", "--skip", LEFT_OUT]);
        let mut command = repo::nightly_cargo(root);
        // With a target named, what runs during the build is not of these flags.
        command.args(["test", "--no-fail-fast", "--target", &host, "--target-dir"]);
        command.arg(repo::target_folder(root)?.join("sanitizers")).args(&words);
        command.env("RUSTFLAGS", FLAGS).env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("SIDEWAY_TEST_DEVICE");
        let (status, found) = host::stream(command)?;
        counts.add(&found);
        if !status.success() {
            fault = Some(format!("cargo test {}: {status}", words.join(" ")));
        } else if found.passed == 0 {
            fault = Some(format!("cargo test {}: no test ran", words.join(" ")));
        }
    }
    let state = fault.map_or(State::Passed, State::Failed);
    Ok(Finished { counts, state, note: None })
}

/// The platform of this machine, for which the nightly toolchain has AddressSanitizer.
fn require() -> Result<String> {
    let advice = "AddressSanitizer needs a nightly toolchain: rustup toolchain install nightly --profile minimal";
    let host = asked("host-tuple").context(advice)?;
    let libraries = PathBuf::from(asked("target-libdir").context(advice)?);
    let runtime = libraries.join("librustc-nightly_rt.asan.a");
    ensure!(runtime.exists(), "the nightly toolchain has no AddressSanitizer for {host}");
    Ok(host)
}

/// What the nightly compiler prints of itself.
fn asked(what: &str) -> Result<String> {
    let mut command = Command::new("rustc");
    command.args(["+nightly", "--print", what]).env_remove("RUSTUP_TOOLCHAIN").env_remove("LD_LIBRARY_PATH");
    let output = command.output().context("cannot run rustc")?;
    ensure!(output.status.success(), "rustc +nightly --print {what} ended with {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
