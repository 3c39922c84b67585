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
mod package;
mod words;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use crate::bindings::{self, Bindings};
use crate::record::{Key, Record};
use crate::repo::Package;
use crate::table::{self, Finished, Row, State};
use crate::test::{self, Extent, Ring};
use crate::toolchain::Missing;
use crate::{packages, plain, repo};

/// Run everything that a change must pass
///
/// The gate stops at the first step that fails; then the rings of tests run. A step or a test program that passed
/// before with the same files is not run again. With names, only these steps and rings run.
#[derive(Args, Debug)]
pub(crate) struct Ci {
    /// Steps and rings to run instead of all
    #[arg(value_enum, value_name = "STEP")]
    steps: Vec<Step>,

    /// Run all steps and every ring whole, not just the gate's part
    #[arg(long)]
    full: bool,

    /// Run also what passed before with the same files
    #[arg(long, env = "XTASK_AGAIN", value_parser = clap::builder::FalseyValueParser::new())]
    again: bool,

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
    /// clippy reports nothing
    Clippy,
    /// rustdoc reports nothing
    Doc,
    /// The two libraries build with rustc alone: no C compiler, cmake, libclang or rdma-core
    Plain,
    /// The committed bindings match the generator's output
    Bindings,
    /// The public crates build with their `rust-version`
    Msrv,
    /// The public items of the crates match `api/`
    Api,
    /// The programs in `compile-fail` fail with the expected errors
    CompileFail,
    /// The public crates build with every set of their features (full run)
    Features,
    /// The fuzz targets build (full run)
    Fuzz,
    /// No byte is lost with a million seeds of trespass's simulator, a thousand killed peers of trespass and of its RPC, and a hundred killed copies (full run)
    Seeds,
    /// Calls that sideway refuses damage memory in rdma-core's drivers, and calls that it passes do not (full run)
    Drivers,
    /// All libraries and programs build for AArch64 (full run)
    Aarch64,
    /// The public crates build with their oldest allowed dependencies (full run)
    Minimal,
    /// The public crates build from the packages to upload (full run)
    Package,
    /// `deny.toml` allows the licences, sources and versions of all dependencies (full run)
    Deny,
    /// The rings pure and embedded
    Tests,
    /// The ring programs
    Programs,
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
        use Step::{Aarch64, Deny, Drivers, Features, Fuzz, Minimal, Package, Sanitizers, Seeds};
        matches!(self, Features | Fuzz | Seeds | Drivers | Aarch64 | Minimal | Package | Deny | Sanitizers)
    }

    fn ring(self) -> Option<Ring> {
        Some(match self {
            Self::Tests => Ring::Embedded,
            Self::Programs => Ring::Programs,
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

    /// The key of the step. Steps that take a second have none, and some steps have a key for each package.
    fn key(self, record: &Record) -> Option<Key> {
        let public: Vec<&str> = published(record).iter().map(|package| package.name.as_str()).collect();
        let (packages, besides): (&[&str], &[&str]) = match self {
            Self::Bindings => (&["rdma-mummy-sys-generator", "rdma-mummy-sys"], &[]),
            Self::Api => (&["sideway", "softrnic", "xsk"], &["api"]),
            Self::CompileFail => (&["sideway-tests"], &[]),
            Self::Seeds => (&["trespass", "rdma-pipe"], &[]),
            Self::Msrv | Self::Minimal | Self::Package => (&public, &["README.md"]),
            Self::Features | Self::Aarch64 | Self::Fuzz | Self::Deny => (&[], &[]),
            _ => return None,
        };
        let versions = if self == Self::Bindings { packages::versions(&[packages::BINDINGS]) } else { String::new() };
        Some(record.key(&format!("step {} {versions}", self.name()), packages, besides))
    }
}

/// Runs the task.
pub(crate) fn main(task: &Ci) -> Result<ExitCode> {
    if task.install {
        packages::allow_install();
    }
    let root = repo::root()?;
    let record = Record::open(&root, task.again || task.write)?;
    let is_asked = |step: &Step| match task.steps.as_slice() {
        [] => task.full || !step.is_full(),
        steps => steps.contains(step),
    };
    let asked: Vec<Step> = Step::value_variants().iter().copied().filter(is_asked).collect();
    let mut rows: Vec<Row> = Vec::new();
    for step in asked.iter().copied().filter(|step| step.ring().is_none()) {
        println!("== {} ==", step.name());
        let row = Row::timed(&step.name(), || carry_out(step, task, &record));
        let failed = matches!(row.state, State::Failed(_));
        rows.push(row);
        if failed {
            println!("to repeat: cargo xtask ci {}", step.name());
            return table::print(&root, &rows);
        }
    }
    let rings: Vec<Ring> = asked.iter().filter_map(|step| step.ring()).collect();
    let named: &[Ring] = if task.steps.is_empty() { &[] } else { &rings };
    let extent = if task.full { Extent::Full } else { Extent::Gate };
    rows.extend(test::run(&root, &record, extent, &test::options(), &rings, named));
    table::print(&root, &rows)
}

/// Runs a step, unless it has passed before.
fn carry_out(step: Step, task: &Ci, record: &Record) -> Result<Finished> {
    let key = step.key(record);
    if key.as_ref().is_some_and(|key| record.find(key).is_some()) {
        return Ok(Finished { state: State::Recorded, ..Finished::default() });
    }
    match run(step, task.write, record) {
        Err(error) if may_lack(task, packages::in_ci()) && error.is::<Missing>() => {
            Ok(Finished::did_not_run(format!("{error:#}")))
        }
        done => {
            let finished = done?;
            // Computes the key again, because the step may have installed packages whose versions are in the key.
            if finished.state == State::Passed
                && let Some(key) = step.key(record)
            {
                record.keep(&key, &finished.results);
            }
            Ok(finished)
        }
    }
}

/// Whether a step may be skipped if its toolchain is missing. A named step must run, and so must all steps of a full
/// run with `CI=true`.
fn may_lack(task: &Ci, in_ci: bool) -> bool {
    task.steps.is_empty() && !(task.full && in_ci)
}

fn run(step: Step, write: bool, record: &Record) -> Result<Finished> {
    let root = repo::root()?;
    match step {
        Step::Fmt => cargo(&["fmt", "--all", "--check"], &[])?,
        Step::Layers => layers::check(&root)?,
        Step::Unsafe => inventory::check(&root)?,
        Step::Words => words::check(&root)?,
        Step::Clippy => {
            return by_package(record, "clippy", |packages| {
                cargo(&[&["clippy"], packages, &["--all-targets", "--", "-D", "warnings"]].concat(), &[])
            });
        }
        Step::Doc => {
            let strict = [("RUSTDOCFLAGS", "-D warnings")];
            return by_package(record, "doc", |packages| {
                cargo(&[&["doc", "--no-deps"], packages].concat(), &strict)?;
                if !packages.contains(&"--workspace") && !packages.contains(&"sideway") {
                    return Ok(());
                }
                // Leaves out the vendors, because other documentation must not link to their items.
                cargo(&["doc", "--package", "sideway", "--no-deps"], &strict)
            });
        }
        Step::Plain => {
            plain::check()?;
            // Checks only these packages, because the rest of the workspace enables sideway's vendors.
            cargo(&["check", "--package", "rdma-mummy-sys", "--package", "sideway"], &[])?;
        }
        Step::Bindings => bindings::main(&Bindings::CHECK)?,
        Step::Msrv => msrv::check(&root, record)?,
        Step::Api => api::check(&root, write)?,
        Step::CompileFail => return compile_fail::check(&root),
        Step::Features => features::check(record)?,
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
            let kills = [&test[..], &["--test", "transports", "killed_amid"]].concat();
            cargo(&kills, &[("TRESPASS_KILLS", "500")])?;
            cargo(&kills, &[("TRESPASS_KILLS", "1000"), ("SOFTRNIC_DEVICES", "softiw0")])?;
            let test = ["test", "--release", "--package", "rdma-pipe", "--test", "programs", "killed_at_random"];
            cargo(&test, &[("RDPIPE_KILLS", "100")])?;
            let test = ["test", "--release", "--package", "trespass-rpc"];
            cargo(&[&test[..], &["--lib", "seeds_give"]].concat(), &[("TRESPASS_SEEDS", "100000")])?;
            cargo(&[&test[..], &["--test", "calls", "killed_"]].concat(), &[("TRESPASS_KILLS", "250")])?;
            cargo(&[&test[..], &["--test", "calls", "beyond_4_gib", "--", "--ignored"]].concat(), &[])?;
            packages::require("reading captured frames", &[packages::DISSECTING])?;
            cargo(&["build", "--package", "stride-perf"], &[])?;
            let test = ["test", "--package", "sideway-tests", "--test", "device", "hosts::", "--", "--ignored"];
            cargo(&test, &[])?;
        }
        Step::Drivers => return drivers::check(&root),
        Step::Aarch64 => aarch64::check()?,
        Step::Minimal => minimal::check(&root, record)?,
        Step::Package => package::check(&root, record)?,
        Step::Deny => deny::check(&root)?,
        _ => bail!("{} is a ring", step.name()),
    }
    Ok(Finished::default())
}

/// Runs `check` with the arguments that select the packages that have not passed it before.
fn by_package(record: &Record, what: &str, check: impl FnOnce(&[&str]) -> Result<()>) -> Result<Finished> {
    let key = |name: &str| record.key(&format!("step {what} {name}"), &[name], &["README.md"]);
    let names = record.packages.iter().map(|package| package.name.clone());
    let keys = names.map(|name| (key(&name), name)).filter(|(key, _)| record.find(key).is_none());
    let (keys, names): (Vec<Key>, Vec<String>) = keys.unzip();
    if names.is_empty() {
        return Ok(Finished { state: State::Recorded, ..Finished::default() });
    }
    check(&test::selection(record, &names))?;
    for key in keys {
        record.keep(&key, &test::Results::default());
    }
    let note =
        (names.len() < record.packages.len()).then(|| format!("of {}; the others passed before", names.join(", ")));
    Ok(Finished { note, ..Finished::default() })
}

/// The packages that are published.
fn published(record: &Record) -> Vec<&Package> {
    record.packages.iter().filter(|package| package.is_published).collect()
}

fn cargo(words: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let mut command = repo::cargo(&repo::root()?);
    command.args(words).envs(environment.iter().copied());
    repo::build(command).with_context(|| format!("cargo {}", words.first().unwrap_or(&"")))
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
