//! The test programs that want a device, and the examples that they start.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

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

/// How each test program is run: with the tests that `cargo test` leaves out, one at a time, as they share one device.
pub(crate) const ARGUMENTS: [&str; 2] = ["--include-ignored", "--test-threads=1"];

/// What is run on a device.
#[derive(Clone, Debug)]
pub(crate) struct Binaries {
    /// The test programs.
    pub(crate) tests: Vec<Binary>,
    /// The folder that cargo would run them in.
    pub(crate) folder: PathBuf,
    examples: PathBuf,
    stride: PathBuf,
    /// Those in C.
    c_examples: PathBuf,
}

/// One test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binary {
    /// The name of its target.
    pub(crate) name: String,
    /// The program.
    pub(crate) file: PathBuf,
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
        .args(["test", "--package", PACKAGE, "--no-run", "--message-format=json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "building the tests: {}", output.status);
    let messages = String::from_utf8_lossy(&output.stdout);
    let tests: Vec<Binary> = messages.lines().filter_map(device_test).collect();

    let metadata = repo::metadata(root, false)?;
    let manifest = metadata["packages"]
        .as_array()
        .and_then(|packages| packages.iter().find(|package| package["name"] == PACKAGE))
        .and_then(|package| package["manifest_path"].as_str())
        .with_context(|| format!("the workspace has no package {PACKAGE}"))?;
    let folder = Path::new(manifest).parent().context("a manifest lies in a folder")?.to_path_buf();
    let examples = repo::target_folder(root)?.join("release/examples");
    Ok(Binaries { tests, folder, examples, stride, c_examples: library.examples() })
}

/// The test program that a line of cargo's messages announces, if it is one for a device.
fn device_test(line: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(line).ok()?;
    let target = &message["target"];
    let name = target["name"].as_str()?;
    let is_test = message["reason"] == "compiler-artifact"
        && target["kind"].as_array()?.iter().any(|kind| kind == "test")
        && name.starts_with(DEVICE_TARGET);
    let file = message["executable"].as_str()?;
    is_test.then(|| Binary { name: name.to_owned(), file: file.into() })
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
            None if self.tests.is_empty() => {
                State::Failed(format!("no test ran: {PACKAGE} has no test target named {DEVICE_TARGET}..."))
            }
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
    fn only_device_tests_are_taken_from_cargos_messages() {
        let line = |kind: &str, name: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","target":{{"kind":["{kind}"],"name":"{name}"}},"executable":"/t/{name}-1"}}"#
            )
        };
        let expected = Binary { name: "on_device_verbs".into(), file: "/t/on_device_verbs-1".into() };
        assert_eq!(device_test(&line("test", "on_device_verbs")), Some(expected));
        assert_eq!(device_test(&line("test", "other")), None);
        assert_eq!(device_test(&line("bench", "on_device_verbs")), None);
        assert_eq!(device_test("not json"), None);
        assert_eq!(device_test(r#"{"reason":"build-finished","success":true}"#), None);
    }
}
