//! The sanitizers ring: tests that Miri cannot run, compiled with AddressSanitizer and then with ThreadSanitizer.
//!
//! The first sees memory that is used outside of an allocation or after its end, and memory that is lost at the end of a test program.
//! The second sees two threads that use the same memory, one of them writing, with nothing that puts one before the other. It knows no
//! fences, sees one process at a time, and not what assembly does. None of its reports has to be suppressed: what rests on fences uses
//! atomics on both sides, which it takes for no race whatever their order, and so proves nothing of; that is left to the tests by loom.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Finished;
use super::host;
use super::report::State;
use super::summary::Results;
use crate::repo;

/// Tests of a package: its own if no program is named, and of the programs all if no part of a name is given.
type Run = (&'static str, &'static [&'static str], &'static [&'static str]);

/// A sanitizer, and what is run with it.
#[derive(Debug)]
struct Sanitizer {
    name: &'static str,
    /// For the compiler.
    flag: &'static str,
    /// Its library in the toolchain.
    runtime: &'static str,
    /// For cargo.
    options: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    runs: &'static [Run],
    left_out: &'static [&'static str],
}

const ADDRESS: Sanitizer = Sanitizer {
    name: "AddressSanitizer",
    flag: "-Zsanitizer=address",
    runtime: "librustc-nightly_rt.asan.a",
    options: &[],
    environment: &[],
    // The software NIC, also with other processes, connections and threads; and sideway on it. Not `gates`, `notes` and `rings` of
    // softrnic: their model has stacks of its own.
    runs: &[
        ("softrnic", &[], &[]),
        ("softrnic", &["connected", "fork", "kills", "many", "processes", "rdmacm", "signals", "threads"], &[]),
        ("sideway-tests", &["device"], &["completions::", "errors::", "srq::", "windows::"]),
    ],
    // What one generation after `fork` has is not freed, and this test makes several in one process.
    left_out: &["a_generation_has_one_and_another_generation_another"],
};

const THREAD: Sanitizer = Sanitizer {
    name: "ThreadSanitizer",
    flag: "-Zsanitizer=thread",
    runtime: "librustc-nightly_rt.tsan.a",
    // It takes every lock of a standard library that was not built with it for none.
    options: &["-Zbuild-std"],
    // What forks with threads has threads in the child as well, which it does not allow unless told to. It is ten times as slow, and
    // tries nothing that fewer cases would not.
    environment: &[("TSAN_OPTIONS", "die_after_fork=0"), ("PROPTEST_CASES", "8")],
    // Where threads meet.
    runs: &[
        ("softrnic", &[], &[]),
        ("softrnic", &["rdmacm", "signals", "threads"], &[]),
        ("sideway-tests", &["device"], &["cm_threads::", "events::", "teardown::", "threads::"]),
        ("sideway-tests", &["verbs"], &["cm::", "calls::"]),
    ],
    // All requests of its parties have the same bytes of memory, which is a race of the test's own.
    left_out: &["who_keeps_to_nothing_harms_nobody"],
};

/// What the standard library is built from.
const SOURCES: &str = "rustlib/src/rust/library/Cargo.toml";

/// Runs each in turn, with the installed nightly toolchain. One that this has not is said; where all `must_run`, it is a failure.
pub(crate) fn run(root: &Path, must_run: bool) -> Result<Finished> {
    let (host, libraries) = match platform() {
        Ok(found) => found,
        Err(error) => return Ok(Finished::did_not_run(format!("{error:#}"))),
    };
    let mut results = Results::default();
    let (mut fault, mut missing) = (None, Vec::new());
    for sanitizer in [&ADDRESS, &THREAD] {
        if let Err(error) = sanitizer.require(&host, &libraries) {
            missing.push(format!("{error:#}"));
            continue;
        }
        for run in sanitizer.runs {
            let (found, trouble) = sanitizer.run(root, &host, run)?;
            results.add(&found);
            fault = trouble.or(fault);
        }
    }
    let note = (!missing.is_empty()).then(|| missing.join("; "));
    if results == Results::default() && fault.is_none() {
        return Ok(Finished::did_not_run(note.unwrap_or_default()));
    }
    let fault = fault.or_else(|| note.clone().filter(|_| must_run));
    Ok(Finished { results, state: fault.map_or(State::Passed, State::Failed), note })
}

impl Sanitizer {
    /// Makes sure that the toolchain has it.
    fn require(&self, host: &str, libraries: &Path) -> Result<()> {
        ensure!(
            libraries.join(self.runtime).exists(),
            "the nightly toolchain has no {} for {host}: {} is not there",
            self.name,
            self.runtime
        );
        if self.options.contains(&"-Zbuild-std") {
            // Of the folder `lib/rustlib/HOST/lib`.
            let sources = libraries.ancestors().nth(3).map(|folder| folder.join(SOURCES));
            ensure!(
                sources.is_some_and(|file| file.exists()),
                "{} needs the sources of the standard library: rustup component add rust-src --toolchain nightly",
                self.name
            );
        }
        Ok(())
    }

    /// Runs the tests of one package; what was wrong, if anything was.
    fn run(&self, root: &Path, host: &str, (package, programs, parts): &Run) -> Result<(Results, Option<String>)> {
        let mut words = vec!["--package", package];
        words.extend(programs.iter().flat_map(|program| ["--test", program]));
        if programs.is_empty() {
            words.push("--lib");
        }
        words.push("--");
        words.extend(*parts);
        words.extend(self.left_out.iter().flat_map(|test| ["--skip", test]));
        println!("\n{}: {}", self.name, words.join(" "));
        let mut command = repo::nightly_cargo(root);
        // With a target named, what runs during the build is not of these flags.
        command.arg("test").args(self.options).args(["--no-fail-fast", "--target", host, "--target-dir"]);
        command.arg(repo::target_folder(root)?.join("sanitizers")).args(&words);
        command.env("RUSTFLAGS", self.flag).env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("SIDEWAY_TEST_DEVICE");
        command.envs(self.environment.iter().copied());
        let (status, found) = host::stream(command)?;
        let title = format!("{}: cargo test {}", self.name, words.join(" "));
        let fault = match status.success() {
            false => Some(format!("{title}: {status}")),
            true if found.passed == 0 => Some(format!("{title}: no test ran")),
            true => None,
        };
        Ok((found, fault))
    }
}

/// The platform of this machine, and the folder of the nightly toolchain's libraries for it.
fn platform() -> Result<(String, PathBuf)> {
    let advice =
        "sanitizers need a nightly toolchain: rustup toolchain install nightly --profile minimal --component rust-src";
    let host = asked("host-tuple").context(advice)?;
    let libraries = PathBuf::from(asked("target-libdir").context(advice)?);
    Ok((host, libraries))
}

/// What the nightly compiler prints of itself.
fn asked(what: &str) -> Result<String> {
    let mut command = Command::new("rustc");
    command.args(["+nightly", "--print", what]).env_remove("RUSTUP_TOOLCHAIN").env_remove("LD_LIBRARY_PATH");
    let output = command.output().context("cannot run rustc")?;
    ensure!(output.status.success(), "rustc +nightly --print {what} ended with {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
