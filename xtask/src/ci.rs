//! `cargo xtask ci`: the gate, and the full run.

mod aarch64;
mod api;
mod compile_fail;
mod deny;
mod drivers;
mod features;
mod inventory;
mod layers;
mod minimal;
mod msrv;
mod names;
mod package;
mod weight;
mod words;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use crate::bindings::{self, Bindings};
use crate::repo::Package;
use crate::test::table::{self, Finished, Row, State};
use crate::test::{self, Extent, Ring};
use crate::toolchain::Missing;
use crate::{packages, plain, repo};

/// Run everything that a change must pass
///
/// The gate stops at the first step that fails; then the rings of tests run. With names, only these steps and rings
/// run.
#[derive(Args, Debug)]
pub(crate) struct Ci {
    /// Steps and rings to run instead of all
    #[arg(value_enum, value_name = "STEP")]
    steps: Vec<Step>,

    /// Run all steps and every ring whole, not just the gate's part
    #[arg(long)]
    full: bool,

    /// Install missing packages and toolchains (Debian, Ubuntu)
    #[arg(long)]
    install: bool,

    /// Update the lists in api/ instead of comparing with them (step `api`)
    #[arg(long)]
    write: bool,
}

/// One step or ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    /// rustfmt changes nothing
    Fmt,
    /// Folders import only from the folders below them
    Layers,
    /// Unsafe code is only where `UNSAFE.md` lists it
    Unsafe,
    /// Prose avoids the words and phrases that `words.txt` lists
    Words,
    /// Tests reserve the names of the host that they use
    Names,
    /// clippy reports nothing
    Clippy,
    /// README's two commands are cheap to build (full run)
    Weight,
    /// rustdoc reports nothing
    Doc,
    /// The two libraries build with rustc alone: no C compiler, cmake, libclang or rdma-core
    Plain,
    /// The committed bindings match the generator's output
    Bindings,
    /// The public crates build with their `rust-version` (full run)
    Msrv,
    /// The public items of the crates match `api/`
    Api,
    /// The programs in `tests/compile-fail` fail with the expected messages
    CompileFail,
    /// The public crates build with every set of their features (full run)
    Features,
    /// The fuzz targets build (full run)
    Fuzz,
    /// No byte is lost with a million seeds of trespass's simulator, a thousand killed peers of trespass and of its RPC, a hundred killed copies, 200 random trees, and pages in a browser (full run)
    Seeds,
    /// Calls that sideway refuses damage memory in rdma-core's drivers, and calls that it passes do not (full run)
    Drivers,
    /// All libraries and programs build for AArch64, most libraries also for 32-bit x86, where unit tests run (full run)
    Aarch64,
    /// The public crates build with their oldest allowed dependencies (full run)
    Minimal,
    /// The public crates build from the packages to upload, which have licences and no tests (full run)
    Package,
    /// `deny.toml` allows the licences, sources and versions of all dependencies (full run)
    Deny,
    /// The rings pure and embedded
    Tests,
    /// The ring programs
    Programs,
    /// The ring readme
    Readme,
    /// The ring cost
    Cost,
    /// The ring miri
    Miri,
    /// The ring sanitizers (full run)
    Sanitizers,
    /// The ring softroce
    Softroce,
    /// The ring hardware
    Hardware,
    /// The ring gpu
    Gpu,
}

impl Step {
    /// Whether the step is in the full run only, because it takes minutes or its findings rarely change.
    fn is_full(self) -> bool {
        use Step::{Aarch64, Deny, Drivers, Features, Fuzz, Minimal, Msrv, Package, Sanitizers, Seeds, Weight};
        matches!(
            self,
            Weight | Msrv | Features | Fuzz | Seeds | Drivers | Aarch64 | Minimal | Package | Deny | Sanitizers
        )
    }

    /// Whether the step runs before the guest of the ring softroce is started: those that most often find something.
    fn is_first(self) -> bool {
        use Step::{Clippy, Fmt, Layers, Names, Unsafe, Words};
        matches!(self, Fmt | Layers | Unsafe | Words | Names | Clippy)
    }

    fn ring(self) -> Option<Ring> {
        Some(match self {
            Self::Tests => Ring::Embedded,
            Self::Programs => Ring::Programs,
            Self::Readme => Ring::Readme,
            Self::Cost => Ring::Cost,
            Self::Miri => Ring::Miri,
            Self::Sanitizers => Ring::Sanitizers,
            Self::Softroce => Ring::Softroce,
            Self::Hardware => Ring::Hardware,
            Self::Gpu => Ring::Gpu,
            _ => return None,
        })
    }

    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Runs the task.
pub(crate) fn main(task: &Ci) -> Result<ExitCode> {
    if task.install {
        packages::allow_install();
    }
    let root = repo::root()?;
    let packages = repo::packages(&root)?;
    let is_asked = |step: &Step| match task.steps.as_slice() {
        [] => task.full || !step.is_full(),
        steps => steps.contains(step),
    };
    let asked: Vec<Step> = Step::value_variants().iter().copied().filter(is_asked).collect();
    let mut rows: Vec<Row> = Vec::new();
    let rings: Vec<Ring> = asked.iter().filter_map(|step| step.ring()).collect();
    let named: &[Ring] = if task.steps.is_empty() { &[] } else { &rings };
    let (extent, options) = (if task.full { Extent::Full } else { Extent::Gate }, test::options());
    let (first, others): (Vec<Step>, Vec<Step>) =
        asked.iter().copied().filter(|step| step.ring().is_none()).partition(|step| step.is_first());
    let mut has_failed = |step: &Step| {
        println!("== {} ==", step.name());
        let row = Row::timed(&step.name(), || carry_out(*step, task, &packages));
        let failed = matches!(row.state, State::Failed(_));
        rows.push(row);
        if failed {
            println!("to repeat: cargo xtask ci {}", step.name());
        }
        failed
    };
    if first.iter().any(&mut has_failed) {
        return table::print(&root, &rows);
    }
    let started = test::start(&root, &packages, extent, &options, &rings, named);
    if others.iter().any(has_failed) {
        return table::print(&root, &rows);
    }
    rows.extend(started.finish());
    table::print(&root, &rows)
}

/// Runs a step; reports that it did not run if its toolchain is missing and may be.
fn carry_out(step: Step, task: &Ci, packages: &[Package]) -> Result<Finished> {
    match run(step, task.write, packages) {
        Err(error) if may_lack(task, packages::in_ci()) && error.is::<Missing>() => {
            Ok(Finished::did_not_run(format!("{error:#}")))
        }
        done => done,
    }
}

/// Whether a step may be skipped if its toolchain is missing. A named step must run, and so must all steps of a full
/// run with `CI=true`.
fn may_lack(task: &Ci, in_ci: bool) -> bool {
    task.steps.is_empty() && !(task.full && in_ci)
}

fn run(step: Step, write: bool, packages: &[Package]) -> Result<Finished> {
    let root = repo::root()?;
    match step {
        Step::Fmt => cargo(&["fmt", "--all", "--check"], &[])?,
        Step::Layers => layers::check(&root)?,
        Step::Unsafe => inventory::check(&root)?,
        Step::Words => words::check(&root)?,
        Step::Names => names::check(&root)?,
        Step::Weight => weight::check(&root)?,
        Step::Clippy => cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])?,
        Step::Doc => {
            let strict = [("RUSTDOCFLAGS", "-D warnings")];
            let names: Vec<String> = published(packages).iter().map(|package| package.name.clone()).collect();
            let selection = repo::selected(&names);
            cargo(&[&["doc", "--no-deps"], &selection[..]].concat(), &strict)?;
            // Leaves out the vendors, because other documentation must not link to their items.
            cargo(&["doc", "--package", "sideway", "--no-deps"], &strict)?;
        }
        Step::Plain => {
            plain::check()?;
            // Checks only these packages, because the rest of the workspace enables sideway's vendors.
            cargo(&["check", "--package", "rdma-mummy-sys", "--package", "sideway"], &[])?;
        }
        Step::Bindings => bindings::main(&Bindings::CHECK)?,
        Step::Msrv => msrv::check(&root, packages)?,
        Step::Api => api::check(&root, write)?,
        Step::CompileFail => return compile_fail::check(&root),
        Step::Features => features::check(packages)?,
        Step::Fuzz => {
            let words = ["clippy", "--manifest-path", "fuzz/Cargo.toml", "--target-dir", "target/fuzz", "--locked"];
            // libFuzzer is written in C++ and linked to the targets; a check needs neither a C++ compiler nor the
            // library.
            let by = [("RUSTFLAGS", "--cfg fuzzing"), ("CUSTOM_LIBFUZZER_PATH", "/nonexistent/libfuzzer.a")];
            cargo(&[&words[..], &["--", "-D", "warnings"]].concat(), &by)?;
        }
        Step::Seeds => {
            let test = ["test", "--release", "--package", "trespass"];
            cargo(&[&test[..], &["--lib", "seeds_keep"]].concat(), &[("TRESPASS_SEEDS", "1000000")])?;
            let kills = [&test[..], &["--test", "transports", "killed_while"]].concat();
            cargo(&kills, &[("TRESPASS_KILLS", "500")])?;
            cargo(&kills, &[("TRESPASS_KILLS", "1000"), ("SOFTRNIC_DEVICES", "softiw0")])?;
            cargo(&[&test[..], &["--lib", "hostile_neighbours"]].concat(), &[("TRESPASS_HOSTILE", "200")])?;
            cargo(&[&test[..], &["--lib", "random_mixes"]].concat(), &[("TRESPASS_MIXES", "300")])?;
            cargo(&[&test[..], &["--test", "transports", "random_calls"]].concat(), &[("TRESPASS_MIXES", "300")])?;
            cargo(&[&test[..], &["--test", "transports", "leave_nothing"]].concat(), &[("TRESPASS_WORKERS", "1000")])?;
            let test = ["test", "--release", "--package", "canter", "--test", "cores", "cancel::"];
            cargo(&test, &[("CANTER_SEEDS", "10000")])?;
            let test = ["test", "--release", "--package", "rdma-pipe", "--test", "programs", "killed_at_random"];
            cargo(&test, &[("RDPIPE_KILLS", "100")])?;
            let test = ["test", "--release", "--package", "rdma-pipe", "--test", "programs", "machine::"];
            cargo(&test, &[("RDPIPE_MACHINES", "200")])?;
            let test = ["test", "--release", "--package", "trespass-rpc"];
            cargo(&[&test[..], &["--lib", "seeds_give"]].concat(), &[("TRESPASS_SEEDS", "100000")])?;
            cargo(&[&test[..], &["--test", "calls", "killed_"]].concat(), &[("TRESPASS_KILLS", "250")])?;
            cargo(&[&test[..], &["--test", "calls", "hostile_neighbours"]].concat(), &[("TRESPASS_HOSTILE", "200")])?;
            cargo(&[&test[..], &["--test", "calls", "beyond_4_gib", "--", "--ignored"]].concat(), &[])?;
            let test = ["test", "--release", "--package", "stride-perf", "--lib", "hostile_neighbours"];
            cargo(&test, &[("STRIDE_HOSTILE", "200")])?;
            packages::require("reading captured frames", &[packages::DISSECTING])?;
            cargo(&["build", "--package", "stride-perf"], &[])?;
            let test = ["test", "--package", "sideway-tests", "--test", "device", "hosts::", "--", "--ignored"];
            cargo(&test, &[])?;
            packages::require("opening pages", &[packages::BROWSER])?;
            let test = ["test", "--package", "stride-perf", "--test", "program", "browser::"];
            cargo(&test, &[("STRIDE_TEST_BROWSER", "1")])?;
        }
        Step::Drivers => return drivers::check(&root),
        Step::Aarch64 => aarch64::check()?,
        Step::Minimal => minimal::check(&root, packages)?,
        Step::Package => package::check(&root, packages)?,
        Step::Deny => deny::check(&root)?,
        _ => bail!("{} is a ring", step.name()),
    }
    Ok(Finished::default())
}

/// The packages that are published.
fn published(packages: &[Package]) -> Vec<&Package> {
    packages.iter().filter(|package| package.is_published).collect()
}

fn cargo(words: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let mut command = repo::cargo(&repo::root()?);
    command.args(words).envs(environment.iter().copied());
    // Tests have time limits, so they do not yield to the guest.
    let run = if words.contains(&"test") { repo::run } else { repo::build };
    run(command).with_context(|| format!("cargo {}", words.first().unwrap_or(&"")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Asked {
        #[command(flatten)]
        task: Ci,
    }

    #[test]
    fn only_the_gate_and_local_runs_may_lack_a_toolchain() {
        let task = |words: &[&str]| Asked::parse_from(std::iter::once(&"ci").chain(words)).task;
        assert!(may_lack(&task(&[]), true) && may_lack(&task(&["--full"]), false));
        assert!(!may_lack(&task(&["--full"]), true) && !may_lack(&task(&["api"]), false));
    }
}
