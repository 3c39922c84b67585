//! `cargo xtask test`: every ring of tests that this machine can run, and the name of each that it cannot.

mod binaries;
mod cost;
mod host;
mod miri;
mod programs;
mod report;
mod sanitizers;
mod softroce;
mod summary;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use self::binaries::Binaries;
use self::report::{Row, State};
use self::summary::Results;
use crate::packages::{self, Install};
use crate::repo;
use crate::softroce::Guest;

/// Run the tests: every ring that this machine can run, naming each that it cannot
///
/// What is missing is installed when CI=true is set, and when root runs this on Debian or Ubuntu; a ring that cannot run is then
/// a failure (miri, sanitizers, hardware and gpu excepted). Elsewhere the closing table says what to install. A ring named with --ring must run.
#[derive(Debug, Parser)]
pub(crate) struct Test {
    /// Run this ring only; may be repeated
    #[arg(long = "ring", value_enum, value_name = "RING")]
    rings: Vec<Ring>,

    /// Of the programs ring, only what has this in its name
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,

    /// Time limit of the guest of the softroce ring
    #[arg(long, value_name = "SECONDS", default_value_t = 3000, value_parser = clap::value_parser!(u64).range(10..))]
    timeout: u64,

    #[command(flatten)]
    guest: Guest,
}

/// A set of tests that need the same of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Ring {
    /// Needs nothing: enums, builders, wire formats, statistics
    Pure,
    /// Needs nothing: the API on devices that tests make in process (runs together with pure)
    Embedded,
    /// Needs a C compiler and the distribution's programs: these, unmodified, on softrnic
    Programs,
    /// Needs a C compiler and valgrind: the instructions of posting and polling, beside those of C
    Cost,
    /// Needs a nightly toolchain with Miri: much of pure and embedded, in an interpreter that sees undefined behaviour
    Miri,
    /// Needs a nightly toolchain: what Miri cannot run of embedded, with AddressSanitizer and ThreadSanitizer
    Sanitizers,
    /// Needs QEMU and a distribution kernel: the kernel's rdma_rxe and the distribution's rdma-core
    Softroce,
    /// Needs an RDMA device, named by SIDEWAY_TEST_DEVICE
    Hardware,
    /// Needs a CUDA driver
    Gpu,
}

impl Test {
    /// All rings, with the guest as it is by default.
    pub(crate) fn all() -> Self {
        Self::parse_from(["test"])
    }

    fn asks_for(&self, ring: Ring) -> bool {
        self.rings.is_empty() || self.rings.contains(&ring)
    }

    /// Whether a ring that cannot run fails the whole. A nightly toolchain is not every machine's to have.
    fn must_run(&self, ring: Ring) -> bool {
        self.rings.contains(&ring)
            || (is_strict() && !matches!(ring, Ring::Miri | Ring::Sanitizers | Ring::Hardware | Ring::Gpu))
    }
}

/// Whether this run is one in which whatever can run must run.
fn is_strict() -> bool {
    packages::in_ci() || Install::InCiOrAsRoot.allowed()
}

/// Carries the task out; fails when a test failed or a ring that must run did not.
pub(crate) fn main(task: &Test) -> Result<ExitCode> {
    let root = repo::root()?;
    let mut rows = Vec::new();
    if task.asks_for(Ring::Pure) || task.asks_for(Ring::Embedded) {
        rows.push(timed("pure, embedded", true, || host::run(&root)));
    }
    if task.asks_for(Ring::Programs) {
        rows.push(timed("programs", task.must_run(Ring::Programs), || programs::run(&root, &task.only)));
    }
    if task.asks_for(Ring::Cost) {
        rows.push(timed("cost", task.must_run(Ring::Cost), || cost::run(&root)));
    }
    if task.asks_for(Ring::Miri) {
        rows.push(timed("miri", task.must_run(Ring::Miri), || miri::run(&root)));
    }
    if task.asks_for(Ring::Sanitizers) {
        rows.push(timed("sanitizers", task.must_run(Ring::Sanitizers), || {
            sanitizers::run(&root, task.must_run(Ring::Sanitizers))
        }));
    }
    // Built once for the two rings that run them.
    let mut binaries = None;
    if task.asks_for(Ring::Softroce) {
        let must_run = task.must_run(Ring::Softroce);
        rows.push(timed("softroce", must_run, || softroce::run(&task.guest, task.timeout, &root, &mut binaries)));
    }
    if task.asks_for(Ring::Hardware) {
        rows.push(timed("hardware", task.must_run(Ring::Hardware), || hardware(&root, &mut binaries)));
    }
    if task.asks_for(Ring::Gpu) {
        rows.push(timed("gpu", task.must_run(Ring::Gpu), || gpu(&root)));
    }
    let device_ring_ran = rows.iter().any(|row| row.is_device_ring() && row.ran());
    Ok(report::print(&rows, device_ring_ran))
}

/// What one ring's runner found.
#[derive(Debug)]
struct Finished {
    results: Results,
    state: State,
    note: Option<String>,
}

impl Finished {
    fn did_not_run(reason: impl Into<String>) -> Self {
        Self { results: Results::default(), state: State::DidNotRun(reason.into()), note: None }
    }
}

fn timed(name: &'static str, must_run: bool, ring: impl FnOnce() -> Result<Finished>) -> Row {
    println!("\n== tests: {name} ==");
    let started = Instant::now();
    let finished = ring().unwrap_or_else(|error| Finished {
        results: Results::default(),
        state: State::Failed(format!("{error:#}")),
        note: None,
    });
    let state = match finished.state {
        State::DidNotRun(reason) if must_run => State::Failed(format!("could not run: {reason}")),
        state => state,
    };
    Row { name, results: finished.results, state, note: finished.note, time: started.elapsed() }
}

/// The gpu ring: the tests that want a GPU, each with the variable by which a machine without one fails them.
fn gpu(root: &std::path::Path) -> Result<Finished> {
    if !std::path::Path::new("/dev/nvidiactl").exists() {
        return Ok(Finished::did_not_run("there is no CUDA driver"));
    }
    let mut results = Results::default();
    let mut state = State::Passed;
    for (package, required) in [("softrnic", "SOFTRNIC_TEST_CUDA"), ("stride-perf", "STRIDE_TEST_CUDA")] {
        let mut command = repo::cargo(root);
        command.args(["test", "--package", package, "--test", "cuda"]).env(required, "1");
        let (status, found) = host::stream(command)?;
        results.add(&found);
        if !status.success() {
            state = State::Failed(format!("cargo test --package {package}: {status}"));
        } else if found.passed == 0 {
            state = State::Failed(format!("cargo test --package {package}: no test ran"));
        }
    }
    Ok(Finished { results, state, note: None })
}

/// The hardware ring: the device tests, on this machine's own device.
fn hardware(root: &std::path::Path, binaries: &mut Option<Binaries>) -> Result<Finished> {
    let Some(device) = std::env::var_os("SIDEWAY_TEST_DEVICE") else {
        return Ok(Finished::did_not_run("SIDEWAY_TEST_DEVICE names no device of this machine"));
    };
    println!("on {}", device.display());
    let binaries = binaries::build_once(root, binaries)?;
    let mut results = Results::default();
    let mut fault = None;
    for module in &binaries.modules {
        println!("\n     Running {} on this machine ({})", module.name, binaries.program.display());
        let mut command = std::process::Command::new(&binaries.program);
        command.args(binaries::ARGUMENTS).args(&module.tests);
        command.current_dir(&binaries.folder).envs(binaries.environment());
        let (status, found) = host::stream(command)?;
        results.add(&found);
        if !status.success() {
            println!("{}: {status}", module.name);
            fault = Some("test programs failed".to_owned());
        }
    }
    Ok(binaries.verdict(results, fault))
}
