//! The rings without requirements: the test programs of the workspace on this machine, and the examples in its
//! documentation.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::{env, thread};

use anyhow::{Context as _, Result, ensure};

use super::build::{Target, selection};
use super::device::{ON_SOFTRNIC, runs_on_device};
use super::{Context, Extent, running};
use crate::packages;
use crate::record::Key;
use crate::repo::{self, Package};
use crate::table::Finished;

/// Files that test programs read, besides their packages and dependencies.
const BESIDES: &[(&str, &[&str])] = &[
    ("softrnic", &["fuzz/corpus", "ARCHITECTURE.md"]),
    ("stride-perf", &["fuzz/corpus", "ARCHITECTURE.md"]),
    ("trespass", &["fuzz/corpus", "ARCHITECTURE.md"]),
    ("sideway-tests", &["README.md", "examples"]),
];
/// Packages with many programs but few tests, which a quick run leaves out.
const SLOW_TO_BUILD: &[&str] = &["sideway-benches", "sideway-examples"];
/// The test program that reads the whole checkout.
const WHOLE: &str = "repo";

/// Runs the test programs that have not passed before. Tests that need a device of the kernel are ignored here; the
/// other tests use softrnic's.
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
    let wanted = wanted(context);
    let built = context.built()?;
    if !is_quick && wanted.iter().any(|(target, _)| runs_on_device(target)) {
        examples(context)?;
    }
    for target in targets(context) {
        let key = key(context, &target);
        let one = context.once(&target.title(), &key, || {
            let built = built.iter().find(|one| one.target == target);
            let built = built.with_context(|| format!("{} was not built", target.title()))?;
            println!("\n     Running {} ({})", target.title(), built.file.display());
            let mut command = built.command();
            command.env_remove("SIDEWAY_TEST_DEVICE");
            if env::var_os("RUST_TEST_THREADS").is_none() {
                // Half of the tests wait for time-outs or for programs, so twice as many tests run as cores exist.
                let threads = 2 * thread::available_parallelism().map_or(1, NonZero::get);
                command.env("RUST_TEST_THREADS", threads.to_string());
            }
            command.env("SIDEWAY_EXAMPLES_DIR", repo::target_folder(context.root)?.join("debug/examples"));
            if packages::in_ci() {
                command.env("SIDEWAY_REQUIRE_C_TESTS", "1");
            }
            if is_quick && runs_on_device(&target) {
                command.args(ON_SOFTRNIC.iter().flat_map(|part| ["--skip", part]));
            }
            let mut one = Finished::default();
            one.add(&target.title(), running::stream(command)?);
            if runs_on_device(&target) {
                one.results.for_device = one.results.skipped;
            }
            Ok(one)
        })?;
        finished.merge(one);
    }
    if context.extent != Extent::Quick {
        finished.merge(documents(context)?);
    }
    Ok(finished.or_nothing_ran())
}

/// The test programs that have not passed before, with their keys.
pub(crate) fn wanted(context: &Context<'_>) -> Vec<(Target, Key)> {
    let targets = targets(context).into_iter().map(|target| (key(context, &target), target));
    targets.filter(|(key, _)| context.record.find(key).is_none()).map(|(key, target)| (target, key)).collect()
}

/// The test programs of the rings: a quick run has those of `cargo test`, except [`SLOW_TO_BUILD`].
fn targets(context: &Context<'_>) -> Vec<Target> {
    let is_quick = |package: &Package| package.is_default && !SLOW_TO_BUILD.contains(&package.name.as_str());
    let is_asked = |package: &&Package| context.extent != Extent::Quick || is_quick(package);
    context.record.packages.iter().filter(is_asked).flat_map(Target::all).collect()
}

fn key(context: &Context<'_>, target: &Target) -> Key {
    let Target { package, kind, name, .. } = target;
    // The C compiler and the headers affect what these tests compare.
    let versions = packages::versions(&[packages::C_TESTS]);
    // In CI these tests must run, and fail if they cannot.
    let is_part = context.extent == Extent::Quick && runs_on_device(target);
    let what = format!("test {package} {kind} {name} {} {is_part} {versions}", packages::in_ci());
    let packages: &[&str] = if name == WHOLE { &[] } else { &[package] };
    let besides = BESIDES.iter().find(|(name, _)| name == package).map_or(&[][..], |(_, files)| files);
    context.record.key(&what, packages, besides)
}

/// Builds the examples that the device tests start, with the features of the whole workspace.
fn examples(context: &Context<'_>) -> Result<()> {
    let built = context.built()?.iter().map(|one| one.target.package.clone());
    let packages: BTreeSet<String> = built.chain(["sideway-examples".to_owned()]).collect();
    let packages: Vec<String> = packages.into_iter().collect();
    let mut cargo = repo::cargo(context.root);
    cargo.args(["build", "--quiet", "--examples"]).args(selection(context.record, &packages));
    repo::build(cargo)
}

/// Runs the examples in the documentation.
fn documents(context: &Context<'_>) -> Result<Finished> {
    let all = context.record.packages.iter().filter(|package| package.has_documents);
    let closure: Vec<&str> = all.map(|package| package.name.as_str()).collect();
    let key = context.record.key("documents", &closure, &["README.md", "sideway/README.md"]);
    context.once("examples in documentation", &key, || {
        let mut cargo = repo::cargo(context.root);
        // Uses the features of the whole workspace, like the other tests.
        cargo.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
        let mut finished = Finished::default();
        finished.add("cargo test --doc", running::stream(cargo)?);
        Ok(finished)
    })
}
