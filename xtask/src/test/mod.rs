//! `cargo xtask test`: the rings of tests.

mod build;
mod cost;
mod device;
mod host;
mod miri;
mod programs;
mod readme;
mod results;
mod running;
mod sanitizers;
mod softroce;
pub(crate) mod table;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;

use anyhow::{Result, bail};
use clap::{Args, Parser, ValueEnum};

pub(crate) use self::build::selection;
use self::build::{Executable, Target};
pub(crate) use self::results::Results;
pub(crate) use self::running::stream;
use self::table::{Finished, Row, State};
use crate::packages;
use crate::repo::{self, Package};
use crate::softroce::Guest;

/// Run the tests: by default the main jobs of each crate, which need only Rust, in five minutes
///
/// The closing text names what did not run, and how to run it. With --all, every ring that this machine
/// supports runs whole. A ring named with --ring must run. Nothing is installed, except with --install or CI=true.
#[derive(Debug, Parser)]
pub(crate) struct Test {
    /// Run every ring that this machine supports
    #[arg(long, conflicts_with = "rings")]
    all: bool,

    /// Run this ring; may be repeated
    #[arg(long = "ring", value_enum, value_name = "RING")]
    rings: Vec<Ring>,

    /// Build the tests, but do not run them
    #[arg(long, conflicts_with_all = ["all", "rings"])]
    no_run: bool,

    /// Install missing packages and toolchains (Debian, Ubuntu)
    #[arg(long)]
    install: bool,

    #[command(flatten)]
    options: Options,
}

/// Options of the rings.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Run only tests of the rings programs and readme with this text in their names
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,

    /// Time limit of the guest of the softroce ring
    #[arg(long, value_name = "SECONDS", default_value_t = 3000,
        value_parser = clap::value_parser!(u64).range(10..))]
    timeout: u64,

    #[command(flatten)]
    guest: Guest,
}

/// A set of tests with the same requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ring {
    /// Needs nothing: enums, builders, wire formats, statistics
    Pure,
    /// Needs nothing: the API on softrnic's device and on the tests' own devices (runs together with pure)
    Embedded,
    /// Needs a C compiler and the distribution's programs: runs these, unmodified, on softrnic
    Programs,
    /// Needs a C compiler and iperf3: runs the commands in the READMEs and in docs/, which must print what is shown
    Readme,
    /// Needs a C compiler and valgrind: instructions of posting and polling, compared with C's
    Cost,
    /// Needs a nightly toolchain with Miri: much of pure and embedded, in an interpreter that detects undefined
    /// behaviour
    Miri,
    /// Needs a nightly toolchain: the part of embedded that Miri cannot run, with AddressSanitizer and ThreadSanitizer
    Sanitizers,
    /// Needs QEMU and a distribution kernel: the kernel's rdma_rxe and the distribution's rdma-core
    Softroce,
    /// Needs an RDMA device, named by SIDEWAY_TEST_DEVICE
    Hardware,
    /// Needs a CUDA driver
    Gpu,
}

/// How much of each ring runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The tests of the main jobs, which need only Rust and little time.
    Quick,
    /// The tests that a change must pass.
    Gate,
    /// All tests.
    Full,
}

/// The state that the rings of one run share.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) root: &'a Path,
    /// The packages of the workspace.
    pub(crate) packages: &'a [Package],
    pub(crate) extent: Extent,
    options: &'a Options,
    /// The rings that run.
    rings: Vec<Ring>,
    /// The rings that were requested by name.
    named: &'a [Ring],
    built: OnceLock<Vec<Executable>>,
    /// The device tests that have run on softrnic for the ring softroce.
    ran: OnceLock<Vec<String>>,
}

/// Runs the task; fails if a test failed or a required ring did not run.
pub(crate) fn main(task: &Test) -> Result<ExitCode> {
    if task.install {
        packages::allow_install();
    }
    let root = repo::root()?;
    let packages = repo::packages(&root)?;
    let rings: &[Ring] = match task.rings.as_slice() {
        [] if task.all => Ring::value_variants(),
        [] => &[Ring::Embedded],
        rings => rings,
    };
    let extent = if task.rings.is_empty() && !task.all { Extent::Quick } else { Extent::Full };
    if task.no_run {
        Context::new(&root, &packages, extent, &task.options, rings.to_vec(), &[]).built()?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = start(&root, &packages, extent, &task.options, rings, &task.rings).finish();
    if extent == Extent::Quick {
        println!("{NOT_RUN}");
    }
    table::print(&root, &rows)
}

/// What a quick run leaves out.
const NOT_RUN: &str = "
Run were the main jobs of each crate, on softrnic and over TCP. Not run:
  cargo test                         unit tests, property tests, tests with other libraries, examples in documentation
  cargo xtask test --ring programs   programs of rdma-core, perftest and others, on softrnic
  cargo xtask test --ring readme     the commands in the READMEs, and their output
  cargo xtask test --ring cost       instructions of posting and polling, compared with C
  cargo xtask test --ring miri       undefined behaviour; also --ring sanitizers
  cargo xtask test --ring softroce   the kernel's soft-RoCE, in QEMU
  cargo xtask test --ring hardware   an RDMA NIC; also --ring gpu
  cargo xtask test --all             everything above that this machine supports; with --install, installs what is
                                     missing first (Debian, Ubuntu)";

/// The rings with default options, for `cargo xtask ci`.
pub(crate) fn options() -> Options {
    Test::parse_from(["test"]).options
}

/// Begins to run rings. `named` are those that were requested by name.
pub(crate) fn start<'a>(
    root: &'a Path,
    packages: &'a [Package],
    extent: Extent,
    options: &'a Options,
    rings: &[Ring],
    named: &'a [Ring],
) -> Started<'a> {
    let rings = Ring::value_variants().iter().copied().filter(|ring| rings.contains(ring));
    // Pure and embedded run together.
    let rings: Vec<Ring> = rings.map(|ring| if ring == Ring::Pure { Ring::Embedded } else { ring }).collect();
    let mut context = Context::new(root, packages, extent, options, rings, named);
    context.rings.dedup();
    Started::new(context)
}

/// Rings of which softroce, if it is one of them, has begun. The guest uses little more than one processor for a long
/// time, so it runs beside all that comes later.
pub(crate) struct Started<'a> {
    context: Context<'a>,
    guest: Option<softroce::Guest>,
    row: Option<Row>,
}

impl<'a> Started<'a> {
    fn new(context: Context<'a>) -> Self {
        let mut guest = None;
        let start = || context.row(Ring::Softroce, || softroce::start(&context, &mut guest));
        let row = context.runs(Ring::Softroce).then(start);
        Self { context, guest, row }
    }

    /// Runs the other rings, and then waits for the guest. Returns one row for each ring.
    pub(crate) fn finish(self) -> Vec<Row> {
        let Self { context, guest, row } = self;
        let others = context.rings.iter().copied().filter(|ring| *ring != Ring::Softroce);
        let mut rows: Vec<Row> = others.map(|ring| context.row(ring, || context.run(ring))).collect();
        rows.extend(row.map(|row| match guest {
            Some(guest) => row.and(context.row(Ring::Softroce, || guest.finish())),
            None => row,
        }));
        rows
    }
}

impl<'a> Context<'a> {
    fn new(
        root: &'a Path,
        packages: &'a [Package],
        extent: Extent,
        options: &'a Options,
        rings: Vec<Ring>,
        named: &'a [Ring],
    ) -> Self {
        Self { root, packages, extent, options, rings, named, built: OnceLock::new(), ran: OnceLock::new() }
    }

    fn row(&self, ring: Ring, run: impl FnOnce() -> Result<Finished>) -> Row {
        let name = match ring {
            Ring::Pure | Ring::Embedded => "pure, embedded".to_owned(),
            ring => ring.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default(),
        };
        println!("\n== tests: {name} ==");
        let mut row = Row::timed(&name, run);
        if let State::DidNotRun(reason) = &row.state
            && self.must_run(ring)
        {
            row.state = State::Failed(format!("could not run: {reason}"));
        }
        row.runs_device_tests = matches!(ring, Ring::Softroce | Ring::Hardware);
        row
    }

    /// Runs a ring other than softroce.
    fn run(&self, ring: Ring) -> Result<Finished> {
        match ring {
            Ring::Pure | Ring::Embedded => host::run(self),
            Ring::Programs => programs::run(self),
            Ring::Readme => readme::run(self),
            Ring::Cost => cost::run(self),
            Ring::Miri => miri::run(self),
            Ring::Sanitizers => sanitizers::run(self),
            Ring::Hardware => device::hardware(self),
            Ring::Gpu => gpu(self),
            Ring::Softroce => bail!("the guest is started before the other rings"),
        }
    }

    /// Whether a ring that cannot run is a failure. The gate passes on machines that cannot have the nightly toolchain.
    fn must_run(&self, ring: Ring) -> bool {
        let is_rare = match ring {
            Ring::Hardware | Ring::Gpu => true,
            Ring::Miri | Ring::Sanitizers => self.extent != Extent::Full,
            _ => false,
        };
        self.named.contains(&ring) || (packages::in_ci() && !is_rare)
    }

    fn runs(&self, ring: Ring) -> bool {
        self.rings.contains(&ring)
    }

    /// The test programs for this machine and for its devices, all built in one call.
    fn built(&self) -> Result<&[Executable]> {
        if let Some(built) = self.built.get() {
            return Ok(built);
        }
        let mut wanted: Vec<Target> = Vec::new();
        if self.runs(Ring::Embedded) {
            wanted.extend(host::targets(self));
        }
        let on_device = device::wanted(self)?;
        let has_device = on_device.is_some();
        wanted.extend(on_device.into_iter().filter(|target| !wanted.contains(target)).collect::<Vec<_>>());
        let packages: BTreeSet<String> = wanted.iter().map(|target| target.package.clone()).collect();
        let packages: Vec<String> = packages.into_iter().collect();
        // The device tests start programs of several packages, which are built with the same features.
        let selection = if has_device { vec!["--workspace"] } else { selection(self.packages, &packages) };
        let built =
            if wanted.is_empty() { Vec::new() } else { build::build(repo::cargo(self.root), &selection, &wanted)? };
        Ok(self.built.get_or_init(|| built))
    }
}

/// The gpu ring: the tests that need a GPU, each with the variable that makes them fail on a machine without one.
fn gpu(context: &Context<'_>) -> Result<Finished> {
    if !Path::new("/dev/nvidiactl").exists() {
        return Ok(Finished::did_not_run("there is no CUDA driver"));
    }
    let mut finished = Finished::default();
    for (package, test, filter, devices) in [
        ("softrnic", "cuda", "", "soft0"),
        ("trespass-rpc", "cuda", "", "soft0"),
        ("trespass-rpc", "cuda", "", "softiw0"),
        ("stride-perf", "program", "cuda::", "soft0"),
    ] {
        let mut command = repo::cargo(context.root);
        command.args(["test", "--package", package, "--test", test, filter]).env("SOFTRNIC_DEVICES", devices);
        command.env("SOFTRNIC_TEST_CUDA", "1").env("STRIDE_TEST_CUDA", "1");
        finished.add(&format!("cargo test --package {package}"), stream(command)?);
    }
    Ok(finished.or_nothing_ran())
}
