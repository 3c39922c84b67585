//! The sanitizers ring: tests that Miri cannot run, compiled with AddressSanitizer and then with ThreadSanitizer.
//!
//! AddressSanitizer detects memory that is used outside an allocation or after its end, and memory that is leaked at
//! the end of a test program. ThreadSanitizer detects two threads that access the same memory without synchronization,
//! one of them writing. ThreadSanitizer ignores fences, watches one process at a time, and does not see assembly. No
//! report needs a suppression. Code that depends on fences uses atomics on both sides, which ThreadSanitizer never
//! reports, so it proves nothing there; the loom tests do.

use std::collections::BTreeSet;

use anyhow::Result;

use super::build::{self, Target};
use super::table::Finished;
use super::{Context, running};
use crate::{repo, toolchain};

/// A package, one of its test programs (the unit tests if the names are equal), and parts of test names (none selects
/// all tests).
type Run = (&'static str, &'static str, &'static [&'static str]);

/// A sanitizer and its runs.
#[derive(Debug)]
struct Sanitizer {
    name: &'static str,
    /// The flag for the compiler.
    flag: &'static str,
    /// The flag for cargo.
    options: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    runs: &'static [Run],
    left_out: &'static [&'static str],
}

const ADDRESS: Sanitizer = Sanitizer {
    name: "AddressSanitizer",
    flag: "-Zsanitizer=address",
    options: &[],
    environment: &[],
    // The software NIC, also with other processes, connections and threads, and sideway on it. The loom tests in
    // `tests/models` are left out, because the model has its own stacks.
    runs: &[
        ("softrnic", "softrnic", &[]),
        ("softrnic", "device", &[]),
        ("softrnic", "processes", &[]),
        (
            "sideway-tests",
            "device",
            &["canter_cancel::", "canter_connections::", "completions::", "errors::", "srq::", "windows::"],
        ),
    ],
    // A generation after `fork` frees nothing, and this test creates several generations in one process.
    left_out: &["each_generation_has_its_own_instance"],
};

const THREAD: Sanitizer = Sanitizer {
    name: "ThreadSanitizer",
    flag: "-Zsanitizer=thread",
    // ThreadSanitizer does not recognize the locks of a standard library that was built without it.
    options: &["-Zbuild-std"],
    // Tests that fork with threads also have threads in the child, which needs an option. Programs run ten times
    // slower, and fewer cases suffice.
    environment: &[("TSAN_OPTIONS", "die_after_fork=0"), ("PROPTEST_CASES", "8")],
    // Multi-threaded tests.
    runs: &[
        ("softrnic", "softrnic", &[]),
        ("softrnic", "device", &["rdmacm::", "signals::", "threads::"]),
        ("sideway-tests", "device", &["cm_threads::", "events::", "teardown::", "threads::"]),
        ("sideway-tests", "cm", &[]),
        ("sideway-tests", "verbs", &["calls::"]),
        ("trespass", "trespass", &["worker::shared", "worker::tests::mixed", "worker::tests::sleeping", "region::"]),
        ("trespass", "transports", &["connections::", "nonblocking::", "random::", "tasks::"]),
        ("trespass-rpc", "calls", &["blocked::", "ends::", "streams::", "unary::", "wakers::"]),
    ],
    // All requests of this test's threads use the same bytes, which is a race in the test.
    left_out: &["malicious_peer_harms_no_other_process"],
};

/// AddressSanitizer without leak reports: these tests provoke failures to destroy, after which sideway leaks the object
/// on purpose.
const ADDRESS_WITH_LEAKS: Sanitizer = Sanitizer {
    name: "AddressSanitizer (leaks allowed)",
    environment: &[("ASAN_OPTIONS", "detect_leaks=0")],
    runs: &[("sideway-tests", "cm", &[])],
    left_out: &[],
    ..ADDRESS
};

/// Runs each sanitizer in turn.
pub(crate) fn run(context: &Context<'_>) -> Result<Finished> {
    let nightly = match toolchain::nightly(context.root, &["rust-src"]) {
        Ok(nightly) => nightly,
        Err(error) => return Ok(Finished::did_not_run(format!("{error:#}"))),
    };
    let mut finished = Finished::default();
    for sanitizer in [&ADDRESS, &ADDRESS_WITH_LEAKS, &THREAD] {
        sanitizer.run(context, &nightly, &mut finished)?;
    }
    Ok(finished.or_nothing_ran())
}

impl Sanitizer {
    /// Builds the test programs in one call, and runs them.
    fn run(&self, context: &Context<'_>, nightly: &str, finished: &mut Finished) -> Result<()> {
        let mut runs = Vec::new();
        for &(package, name, parts) in self.runs {
            let of_package = context.packages.iter().find(|one| one.name == package).map(Target::all);
            let Some(target) = of_package.into_iter().flatten().find(|target| target.name == name) else {
                finished.fail(format!("{}: {package} has no test program {name}", self.name));
                continue;
            };
            runs.push((target, parts));
        }
        let mut cargo = repo::toolchain_cargo(context.root, nightly);
        cargo.env("RUSTFLAGS", self.flag).env_remove("CARGO_ENCODED_RUSTFLAGS");
        // With an explicit target, these flags do not apply to build scripts and macros.
        let host = toolchain::printed(nightly, "host-tuple")?;
        let folder = repo::target_folder(context.root)?.join("sanitizers");
        let folder = folder.to_string_lossy();
        let mut words = vec!["--target", &host, "--target-dir", &folder];
        words.extend(self.options);
        let packages: BTreeSet<&str> = self.runs.iter().map(|run| run.0).collect();
        words.extend(packages.iter().flat_map(|package| ["--package", package]));
        let wanted: Vec<Target> = runs.iter().map(|(target, _)| target.clone()).collect();
        let built = build::build(cargo, &words, &wanted)?;
        for (program, (target, parts)) in built.iter().zip(runs) {
            let title = format!("{}: {}", self.name, target.title());
            println!("\n     Running {title}");
            let mut command = program.command();
            command.args(parts).args(self.left_out.iter().flat_map(|test| ["--skip", test]));
            command.env_remove("SIDEWAY_TEST_DEVICE").envs(self.environment.iter().copied());
            let mut one = Finished::default();
            one.add(&title, running::stream(command)?);
            finished.merge(one.or_nothing_ran());
        }
        Ok(())
    }
}
