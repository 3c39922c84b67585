//! The miri ring: tests of the pure and embedded rings, in an interpreter that detects undefined behaviour.

use std::io::Write;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::table::{Finished, State};
use super::{Context, Extent, running};
use crate::{repo, toolchain};

/// A package, the arguments that select its tests, and whether the gate runs them.
type Run = (&'static str, &'static [&'static str], bool);

/// The runs, the longest first: the packages' own tests, and the programs whose fake drivers are in this process. The
/// gate runs those that cover most of the unsafe code.
const RUNS: &[Run] = &[
    ("softrnic", &["--lib", "--", "mem::", "wire::", "cq::", "srq::", "ipc::"], true),
    (
        "softrnic",
        &["--lib", "--", "--skip", "mem::", "--skip", "wire::", "--skip", "cq::", "--skip", "srq::", "--skip", "ipc::"],
        false,
    ),
    // The table of transitions is left out: it is safe code, and its rows take minutes.
    ("sideway", &["--lib", "--", "--skip", "transition::table"], false),
    ("sideway-tests", &["--test", "verbs", "--", "requests::"], true),
    ("sideway-tests", &["--test", "verbs", "--", "calls::", "completion::", "--skip", "calls::requests::"], false),
    ("sideway-tests", &["--test", "verbs", "--", "holes::"], false),
    ("rdma-mummy-sys", &["--lib"], true),
    ("xsk", &["--lib", "--test", "simulation"], true),
    ("sideway-models", &["--test", "frames"], true),
];

/// The clock counts executed instructions, so a test behaves the same on a busy machine: no clock, file or variable of
/// the machine is read, except the number of cases. The cases and the order of threads are the same each time;
/// `MIRIFLAGS=-Zmiri-seed=7` selects others. Objects of a fake driver live until the process ends; C has addresses in
/// integers.
const FLAGS: &str = "-Zmiri-isolation-error=warn-nobacktrace -Zmiri-env-forward=PROPTEST_CASES -Zmiri-ignore-leaks -Zmiri-permissive-provenance";

/// The interpreter has one thread, so one runs on each processor.
pub(crate) fn run(context: &Context<'_>) -> Result<Finished> {
    let nightly = match toolchain::nightly(context.root, &["miri", "rust-src"]) {
        Ok(nightly) => nightly,
        Err(error) => return Ok(Finished::did_not_run(format!("{error:#}"))),
    };
    let is_asked = |(_, _, in_gate): &&Run| *in_gate || context.extent == Extent::Full;
    let runs: Vec<&Run> = RUNS.iter().filter(is_asked).collect();
    // Prepared once, before several processes would do so.
    let mut setup = repo::toolchain_cargo(context.root, &nightly);
    setup.args(["miri", "setup"]);
    repo::build(setup)?;
    let next = AtomicUsize::new(0);
    let finished = Mutex::new(Finished::default());
    let work = || -> Result<()> {
        while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (package, words, _) = run;
            let title = format!("cargo miri test --package {package} {}", words.join(" "));
            let one = run_one(context, &nightly, &title, run)?;
            finished.lock().unwrap_or_else(std::sync::PoisonError::into_inner).merge(one);
        }
        Ok(())
    };
    let workers = thread::available_parallelism().map_or(1, NonZero::get).min(runs.len());
    thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            let ended = thread.join();
            ensure!(ended.is_ok(), "a thread of the ring has panicked");
            ended.unwrap_or(Ok(()))?;
        }
        Ok(())
    })?;
    let finished = finished.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(finished.or_nothing_ran())
}

/// Executes one run, and prints its output when it has ended.
fn run_one(context: &Context<'_>, nightly: &str, title: &str, (package, words, _): &Run) -> Result<Finished> {
    let started = Instant::now();
    let mut command = repo::toolchain_cargo(context.root, nightly);
    command.args(["miri", "test", "--no-fail-fast", "--package", package]).args(*words);
    command.env_remove("SIDEWAY_TEST_DEVICE").env("PROPTEST_CASES", "4");
    let more = std::env::var("MIRIFLAGS").unwrap_or_default();
    command.env("MIRIFLAGS", format!("{FLAGS} {more}"));
    let mut text = Vec::new();
    // The interpreter's clock counts instructions, so no time limit ends early.
    let ended = running::copy(repo::yielding(&command), &mut text)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{title}: {:.0} s", started.elapsed().as_secs_f64())?;
    out.write_all(&text)?;
    let mut finished = Finished::default();
    finished.add(title, ended);
    let mut finished = finished.or_nothing_ran();
    if let State::Failed(fault) = &mut finished.state
        && !fault.starts_with(title)
    {
        *fault = format!("{title}: {fault}");
    }
    Ok(finished)
}
