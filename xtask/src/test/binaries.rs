//! The tests that want a device, module by module, and the examples that they start.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Finished;
use super::report::State;
use super::summary::{DEVICE_TARGET, Results};
use crate::packages::{self, Install};
use crate::{capi, repo};

/// The package that holds the device tests.
const PACKAGE: &str = "sideway-tests";
/// The package whose examples they start.
const EXAMPLES: &str = "sideway-examples";

/// How each module is run: with the tests that `cargo test` leaves out, one at a time, as they share one device. The names of its tests
/// follow.
pub(crate) const ARGUMENTS: [&str; 3] = ["--include-ignored", "--test-threads=1", "--exact"];

/// What is run on a device.
#[derive(Clone, Debug)]
pub(crate) struct Binaries {
    /// The program with the device tests.
    pub(crate) program: PathBuf,
    /// Its modules. Each is run in a process of its own.
    pub(crate) modules: Vec<Module>,
    /// The folder that cargo would run them in.
    pub(crate) folder: PathBuf,
    examples: PathBuf,
    stride: PathBuf,
    /// Those in C.
    c_examples: PathBuf,
}

/// A module of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    /// Its name.
    pub(crate) name: String,
    /// The full names of its tests.
    pub(crate) tests: Vec<String>,
}

/// Builds them, unless `built` already holds them.
pub(crate) fn build_once<'a>(root: &Path, built: &'a mut Option<Binaries>) -> Result<&'a Binaries> {
    let binaries = match built.take() {
        Some(binaries) => binaries,
        None => build(root)?,
    };
    Ok(built.insert(binaries))
}

fn build(root: &Path) -> Result<Binaries> {
    packages::require("the device tests", &[packages::C_EXAMPLES], Install::InCiOrAsRoot)?;
    let status = repo::cargo(root)
        .args(["build", "--release", "--package", EXAMPLES, "--examples"])
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "building the examples: {status}");
    let stride = repo::stride(root)?;
    let library = capi::build(root, true)?;
    capi::examples(root, &library)?;

    let output = repo::cargo(root)
        .args([
            "test",
            "--package",
            PACKAGE,
            "--test",
            DEVICE_TARGET,
            "--no-run",
            "--message-format=json-render-diagnostics",
        ])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "building the tests: {}", output.status);
    let messages = String::from_utf8_lossy(&output.stdout);
    let program = messages.lines().find_map(device_program);
    let program = program.with_context(|| format!("{PACKAGE} has no test target {DEVICE_TARGET}"))?;
    let list = Command::new(&program).args(["--list", "--format=terse"]).output().context("cannot list the tests")?;
    ensure!(list.status.success(), "{} --list: {}", program.display(), list.status);
    let modules = modules(&String::from_utf8_lossy(&list.stdout));

    let metadata = repo::metadata(root, false)?;
    let manifest = metadata["packages"]
        .as_array()
        .and_then(|packages| packages.iter().find(|package| package["name"] == PACKAGE))
        .and_then(|package| package["manifest_path"].as_str())
        .with_context(|| format!("the workspace has no package {PACKAGE}"))?;
    let folder = Path::new(manifest).parent().context("a manifest lies in a folder")?.to_path_buf();
    let examples = repo::target_folder(root)?.join("release/examples");
    Ok(Binaries { program, modules, folder, examples, stride, c_examples: library.examples() })
}

/// The test program that a line of cargo's messages announces, if it is the one for a device.
fn device_program(line: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    let target = &message["target"];
    let is_test = message["reason"] == "compiler-artifact"
        && target["kind"].as_array()?.iter().any(|kind| kind == "test")
        && target["name"] == DEVICE_TARGET;
    let file = message["executable"].as_str()?;
    is_test.then(|| file.into())
}

/// The modules of a program, from its terse list of tests.
fn modules(list: &str) -> Vec<Module> {
    let mut modules: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for test in list.lines().filter_map(|line| line.strip_suffix(": test")) {
        let name = test.split_once("::").map_or("", |(module, _)| module);
        modules.entry(name).or_default().push(test.to_owned());
    }
    modules.into_iter().map(|(name, tests)| Module { name: name.to_owned(), tests }).collect()
}

impl Binaries {
    /// What the programs find in their environment beside the caller's.
    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        vec![
            ("SIDEWAY_EXAMPLES_DIR".into(), self.examples.clone().into()),
            ("SIDEWAY_STRIDE_PERF".into(), self.stride.clone().into()),
            ("SIDEWAY_CAPI_EXAMPLES".into(), self.c_examples.clone().into()),
            ("CARGO_MANIFEST_DIR".into(), self.folder.clone().into()),
        ]
    }

    /// The end of a ring: it failed for `fault`, or because nothing ran.
    pub(crate) fn verdict(&self, results: Results, fault: Option<String>) -> Finished {
        let state = match fault {
            Some(fault) => State::Failed(fault),
            None if results.failed > 0 => State::Failed("tests failed".into()),
            None if results.passed == 0 => State::Failed("no test ran".into()),
            None => State::Passed,
        };
        Finished { results, state, note: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_device_program_is_taken_from_cargos_messages() {
        let line = |kind: &str, name: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","target":{{"kind":["{kind}"],"name":"{name}"}},"executable":"/t/{name}-1"}}"#
            )
        };
        assert_eq!(device_program(&line("test", "device")), Some("/t/device-1".into()));
        assert_eq!(device_program(&line("test", "other")), None);
        assert_eq!(device_program(&line("bench", "device")), None);
        assert_eq!(device_program("not json"), None);
        assert_eq!(device_program(r#"{"reason":"build-finished","success":true}"#), None);
    }

    #[test]
    fn tests_are_listed_by_module() {
        let module = |name: &str, tests: &[&str]| Module {
            name: name.to_owned(),
            tests: tests.iter().map(|&test| test.to_owned()).collect(),
        };
        let list = "xrc::a: test\nerrors::b: test\nerrors::deep::c: test\n\n3 tests, 0 benchmarks\n";
        assert_eq!(modules(list), [module("errors", &["errors::b", "errors::deep::c"]), module("xrc", &["xrc::a"])]);
    }
}
