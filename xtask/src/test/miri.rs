//! The miri ring: tests of the pure and embedded rings, in an interpreter that sees undefined behaviour.

use std::io::Write;
use std::num::NonZero;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::Finished;
use super::host;
use super::report::State;
use super::summary::Results;
use crate::packages::Install;
use crate::repo;

/// What is run: the packages' own tests, and the programs whose fake drivers live in this process. Those that take long come first.
const RUNS: &[&[&str]] = &[
    &["--package", "softrnic", "--lib"],
    // The table of transitions is safe code, and its rows take minutes.
    &["--package", "sideway", "--lib", "--", "--skip", "transition::table"],
    &["--package", "sideway-tests", "--test", "verbs", "--", "requests::"],
    &["--package", "sideway-tests", "--test", "verbs", "--", "cm::"],
    &["--package", "sideway-tests", "--test", "verbs", "--", "calls::", "completion::", "--skip", "calls::requests::"],
    &["--package", "sideway-tests", "--test", "verbs", "--", "rdmacm_provider::", "holes::"],
    &["--package", "rdma-mummy-sys", "--lib"],
];

/// The clock counts what is executed, so that a test comes out the same on a busy machine: no clock, file or variable of the machine is read, but for
/// the number of cases. These are the same each time then, as is the order of the threads; `MIRIFLAGS=-Zmiri-seed=7` has others. What a fake driver made is there until the process ends; C has addresses in integers.
const FLAGS: &str = "-Zmiri-isolation-error=warn-nobacktrace -Zmiri-env-forward=PROPTEST_CASES -Zmiri-ignore-leaks -Zmiri-permissive-provenance";

/// What rustup installs.
const INSTALL: &[&str] =
    &["toolchain", "install", "nightly", "--no-self-update", "--profile", "minimal", "--component", "miri,rust-src"];

/// Of the toolchain: what the interpreter builds the standard library from.
const SOURCES: &str = "lib/rustlib/src/rust/library/Cargo.toml";

/// Runs all, with the installed nightly toolchain or, in CI and for root, with one installed for this. The interpreter has one
/// thread, so that as many run side by side as there are processors.
pub(crate) fn run(root: &Path) -> Result<Finished> {
    if let Err(error) = require(root) {
        return Ok(Finished::did_not_run(format!("{error:#}")));
    }
    // Once, before several would.
    let mut setup = repo::nightly_cargo(root);
    setup.args(["miri", "setup"]);
    let (status, _) = host::stream(setup)?;
    ensure!(status.success(), "cargo miri setup: {status}");
    let workers = thread::available_parallelism().map_or(1, NonZero::get).min(RUNS.len());
    let next = AtomicUsize::new(0);
    let all = thread::scope(|scope| {
        let work = || {
            let mut found = Vec::new();
            while let Some(words) = RUNS.get(next.fetch_add(1, Ordering::Relaxed)) {
                found.push(run_one(root, words)?);
            }
            Ok(found)
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread has panicked")));
        ended.collect::<Result<Vec<_>>>()
    })?;
    let mut results = Results::default();
    let mut fault = None;
    for (found, trouble) in all.into_iter().flatten() {
        results.add(&found);
        fault = fault.or(trouble);
    }
    let state = fault.map_or(State::Passed, State::Failed);
    Ok(Finished { results, state, note: None })
}

/// Runs one, and prints what it says once it has ended; what was wrong, if anything was.
fn run_one(root: &Path, words: &[&str]) -> Result<(Results, Option<String>)> {
    let started = Instant::now();
    let mut command = repo::nightly_cargo(root);
    command.args(["miri", "test", "--no-fail-fast"]).args(words).env_remove("SIDEWAY_TEST_DEVICE");
    let more = std::env::var("MIRIFLAGS").unwrap_or_default();
    command.env("MIRIFLAGS", format!("{FLAGS} {more}")).env("PROPTEST_CASES", "4");
    let mut text = Vec::new();
    let (status, found) = host::copy(command, &mut text)?;
    let title = format!("cargo miri test {}", words.join(" "));
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{title}: {:.0} s", started.elapsed().as_secs_f64())?;
    out.write_all(&text)?;
    let fault = match status.success() {
        false => Some(format!("{title}: {status}")),
        true if found.passed == 0 => Some(format!("{title}: no test ran")),
        true => None,
    };
    Ok((found, fault))
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
