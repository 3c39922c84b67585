//! The rings without requirements: the test programs of the workspace on this machine, and the examples in its
//! documentation.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::process::Command;
use std::{env, thread};

use anyhow::{Context as _, Result, ensure};

use super::build::{Target, selection};
use super::device::{ON_SOFTRNIC, runs_on_device};
use super::table::Finished;
use super::{Context, Extent, running};
use crate::packages;
use crate::repo;

/// The test programs of a quick run, by package and name: the main job of each crate. They have few dependencies, so
/// they take little time to build. The tests with these parts in their names are left out: they build programs.
const QUICK: &[(&str, &str, &[&str])] = &[
    ("sideway-tests", "device", &ON_SOFTRNIC),
    ("sideway-tests", "benchmark", &[]),
    ("trespass", "transports", &[]),
    ("canter", "cores", &[]),
    ("trespass-rpc", "calls", &["readme::"]),
    ("rdma-pipe", "programs", &[]),
    ("xsk", "simulation", &[]),
];

/// A folder that does not exist, so that tests of a quick run that start examples fail.
const NO_EXAMPLES: &str = "no-examples";

/// Runs the test programs. Tests that need a device of the kernel are ignored here; the other tests use softrnic's.
pub(crate) fn run(context: &Context<'_>) -> Result<Finished> {
    // A quick run installs nothing; tests that lack the C headers report this.
    let is_quick = context.extent == Extent::Quick;
    let c_tests =
        if is_quick { Ok(()) } else { packages::require("comparing with the C headers", &[packages::C_TESTS]) };
    let mut finished = Finished::default();
    if let Err(error) = &c_tests {
        ensure!(!packages::in_ci(), "{error:#}");
        finished.note = Some(format!("{error:#}"));
    }
    // As in a quick run of a fresh clone, there are no examples yet.
    for target in targets(context) {
        if let Some(left_out) = quick(&target) {
            let is_asked = |test: &str| !left_out.iter().any(|part| test.contains(part));
            finished.merge(run_some(context, &target, NO_EXAMPLES, is_asked)?);
        }
    }
    if is_quick {
        return Ok(finished.or_nothing_ran());
    }
    examples(context)?;
    for target in targets(context) {
        let left_out = quick(&target);
        let is_asked = |test: &str| left_out.is_none_or(|parts| parts.iter().any(|part| test.contains(part)));
        finished.merge(run_some(context, &target, "debug/examples", is_asked)?);
    }
    finished.merge(documents(context)?);
    Ok(finished.or_nothing_ran())
}

/// Runs the tests of a program that are asked for and did not run for the ring softroce. `examples` is the folder of the
/// examples, in the target folder.
fn run_some(
    context: &Context<'_>,
    target: &Target,
    examples: &str,
    is_asked: impl Fn(&str) -> bool,
) -> Result<Finished> {
    let built = context.built()?.iter().find(|one| one.target == *target);
    let built = built.with_context(|| format!("{} was not built", target.title()))?;
    let mut command = built.command();
    prepare(&mut command);
    command.env("SIDEWAY_EXAMPLES_DIR", repo::target_folder(context.root)?.join(examples));
    if packages::in_ci() {
        command.env("SIDEWAY_REQUIRE_C_TESTS", "1");
    }
    let mut finished = Finished::default();
    if quick(target).is_some() {
        let has_run = context.ran.get().filter(|_| runs_on_device(target));
        let mut tests = built.tests(&[])?;
        tests.retain(|test| is_asked(test) && !has_run.is_some_and(|ran| ran.contains(test)));
        if tests.is_empty() {
            return Ok(finished);
        }
        command.arg("--exact").args(tests);
    }
    println!("\n     Running {} ({})", target.title(), built.file.display());
    finished.add(&target.title(), running::stream(command)?);
    if runs_on_device(target) {
        finished.results.for_device = finished.results.skipped;
    }
    Ok(finished)
}

/// Sets the environment of a test program that runs on softrnic.
pub(super) fn prepare(command: &mut Command) {
    command.env_remove("SIDEWAY_TEST_DEVICE");
    if env::var_os("RUST_TEST_THREADS").is_none() {
        // Half of the tests wait for time-outs or for programs, so twice as many tests run as cores exist.
        let threads = 2 * thread::available_parallelism().map_or(1, NonZero::get);
        command.env("RUST_TEST_THREADS", threads.to_string());
    }
}

/// The test programs: those of [`QUICK`] in a quick run, and all otherwise.
pub(crate) fn targets(context: &Context<'_>) -> Vec<Target> {
    let is_asked = |target: &Target| context.extent != Extent::Quick || quick(target).is_some();
    context.packages.iter().flat_map(Target::all).filter(is_asked).collect()
}

/// The tests that a quick run leaves out of this program, if it runs the program.
fn quick(target: &Target) -> Option<&'static [&'static str]> {
    let is_it = |(package, name, _): &&(&str, &str, _)| *package == target.package && *name == target.name;
    QUICK.iter().find(is_it).map(|(_, _, left_out)| *left_out)
}

/// Builds the examples that the device tests start, with the features of the whole workspace.
fn examples(context: &Context<'_>) -> Result<()> {
    let built = context.built()?.iter().map(|one| one.target.package.clone());
    let packages: BTreeSet<String> = built.chain(["sideway-examples".to_owned()]).collect();
    let packages: Vec<String> = packages.into_iter().collect();
    let mut cargo = repo::cargo(context.root);
    cargo.args(["build", "--quiet", "--examples"]).args(selection(context.packages, &packages));
    repo::build(cargo)
}

/// Runs the examples in the documentation. Those that must not compile must fail with their error codes.
fn documents(context: &Context<'_>) -> Result<Finished> {
    let mut cargo = repo::cargo(context.root);
    // Uses the features of the whole workspace, like the other tests.
    cargo.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
    cargo.env("RUSTDOC", context.root.join("xtask/src/test/rustdoc.sh"));
    let mut finished = Finished::default();
    finished.add("cargo test --doc", running::stream(cargo)?);
    Ok(finished)
}
