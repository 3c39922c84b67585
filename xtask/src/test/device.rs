//! The tests that need a device: the modules of one test program, each in a process of its own.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};

use super::build::{self, Executable, Target};
use super::table::Finished;
use super::{Context, Extent, Ring, running};
use crate::packages;

/// The test program, and its package.
const DEVICE: &str = "device";
const PACKAGE: &str = "sideway-tests";

/// Arguments for each module: include the tests that other rings ignore, one at a time, because they share one device.
/// The names of the module's tests follow.
const ARGUMENTS: [&str; 3] = ["--include-ignored", "--test-threads=1", "--exact"];
/// Parts of the names of tests that take minutes in the guest. Only the full run runs these tests there.
const SLOW: [&str; 5] = [
    "_under_valgrind",
    "a_mebibyte_a_thousand_times",
    "hundred_thousand_messages",
    "large_stream_arrives_whole",
    "threads_share_a_worker",
];
/// Parts of the names of modules that run our own programs, or hundreds of rounds. The ring embedded runs these on
/// softrnic, except in a quick run. In the guest, the gate runs only those that need the kernel's device or rdma-core's
/// programs.
pub(super) const ON_SOFTRNIC: [&str; 6] = ["programs", "pingpong", "hosts", "roce", "cm_leaks", "cm_threads"];

/// A module of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    pub(crate) name: String,
    /// The full names of the module's tests.
    pub(crate) tests: Vec<String>,
    /// The number of tests that the other rings ignore.
    pub(crate) ignored: u64,
}

/// The test program, if a ring runs it on a device.
pub(crate) fn wanted(context: &Context<'_>) -> Result<Option<Target>> {
    let is_hardware = context.runs(Ring::Hardware) && std::env::var_os("SIDEWAY_TEST_DEVICE").is_some();
    if !is_hardware && !context.runs(Ring::Softroce) {
        return Ok(None);
    }
    target(context).map(Some)
}

fn target(context: &Context<'_>) -> Result<Target> {
    let package = context.packages.iter().find(|package| package.name == PACKAGE);
    let targets = package.map(Target::all).unwrap_or_default();
    targets.into_iter().find(runs_on_device).context("there is no program with device tests")
}

/// Whether the target is the program whose ignored tests the device rings run.
pub(crate) fn runs_on_device(target: &Target) -> bool {
    target.package == PACKAGE && target.name == DEVICE
}

/// The test program, built.
pub(crate) fn program<'a>(context: &'a Context<'_>) -> Result<&'a Executable> {
    let target = target(context)?;
    context.built()?.iter().find(|one| one.target == target).context("the device tests were not built")
}

/// The modules of the program, with the tests of this run.
pub(crate) fn modules(context: &Context<'_>, program: &Executable) -> Result<Vec<Module>> {
    Ok(listed(&program.tests(&[])?, &program.tests(&["--ignored"])?, context.extent))
}

/// The modules in the list of all tests, given the list of the ignored ones.
fn listed(list: &[String], ignored: &[String], extent: Extent) -> Vec<Module> {
    let ignored: BTreeSet<&str> = ignored.iter().map(String::as_str).collect();
    let has = |parts: &[&str], name: &str| parts.iter().any(|part| name.contains(part));
    let mut modules: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for test in list {
        let test = test.as_str();
        let name = test.split_once("::").map_or("", |(module, _)| module);
        let is_in_gate = !has(&SLOW, test) && (ignored.contains(test) || !has(&ON_SOFTRNIC, name));
        if is_in_gate || extent == Extent::Full {
            modules.entry(name).or_default().push(test.to_owned());
        }
    }
    let module = |(name, tests): (&str, Vec<String>)| {
        let ignored = tests.iter().filter(|test| ignored.contains(test.as_str())).count() as u64;
        Module { name: name.to_owned(), tests, ignored }
    };
    modules.into_iter().map(module).collect()
}

/// The hardware ring: the device tests, on this machine's own device.
pub(crate) fn hardware(context: &Context<'_>) -> Result<Finished> {
    let Some(device) = std::env::var_os("SIDEWAY_TEST_DEVICE") else {
        return Ok(Finished::did_not_run("SIDEWAY_TEST_DEVICE names no device of this machine"));
    };
    println!("on {}", device.display());
    packages::require("the device tests", &[packages::C_EXAMPLES])?;
    let environment = build::programs(context.root)?;
    let program = program(context)?;
    let mut finished = Finished::default();
    for module in modules(context, program)? {
        println!("\n     Running {} on this machine ({})", module.name, program.file.display());
        let mut command = program.command();
        command.args(ARGUMENTS).args(&module.tests).envs(environment.iter().cloned());
        finished.add(&module.name, running::stream(command)?);
        finished.results.for_device += module.ignored;
    }
    Ok(finished.or_nothing_ran())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_listed_by_module() {
        let module = |name: &str, tests: &[&str], ignored| Module {
            name: name.to_owned(),
            tests: tests.iter().map(|&test| test.to_owned()).collect(),
            ignored,
        };
        let listed = |list: &[&str], ignored: &[&str], extent| {
            let [list, ignored] =
                [list, ignored].map(|names| names.iter().map(|&name| name.into()).collect::<Vec<_>>());
            listed(&list, &ignored, extent)
        };
        let list = &["xrc::a", "errors::b", "errors::deep::c", "xrc::d_under_valgrind"][..];
        let ignored = &["errors::b", "xrc::d_under_valgrind"][..];
        let errors = module("errors", &["errors::b", "errors::deep::c"], 1);
        assert_eq!(listed(list, ignored, Extent::Gate), [errors.clone(), module("xrc", &["xrc::a"], 0)]);
        assert_eq!(
            listed(list, ignored, Extent::Full),
            [errors, module("xrc", &["xrc::a", "xrc::d_under_valgrind"], 1)]
        );
        let (list, ignored) = (&["programs_x::with_c", "programs_x::with_itself"][..], &["programs_x::with_c"][..]);
        assert_eq!(listed(list, ignored, Extent::Gate), [module("programs_x", &["programs_x::with_c"], 1)]);
    }
}
