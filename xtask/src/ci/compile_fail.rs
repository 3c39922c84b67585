//! The step `compile-fail`: programs for which sideway has error messages of its own, and rustc's errors for them.
//!
//! The texts are those of one rustc release, so only this release is compared.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::test::table::Finished;
use crate::{repo, test, toolchain};

/// The name of the test, which other runs ignore.
const TEST: &str = "misuse_does_not_compile";
/// The release.
const RELEASE: &str = "1.95.0";

/// Runs the test, with the installed compiler if it has this release.
pub(super) fn check(root: &Path) -> Result<Finished> {
    let version = Command::new("rustc").arg("--version").output();
    let is_installed =
        version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).starts_with(&format!("rustc {RELEASE} ")));
    let mut cargo = if is_installed {
        repo::cargo(root)
    } else {
        toolchain::require(root, RELEASE)?;
        repo::toolchain_cargo(root, RELEASE)
    };
    // Uses the features of the whole workspace, like the other tests.
    cargo.args(["test", "--workspace", "--test", "compile_fail", TEST, "--", "--ignored"]);
    let mut finished = Finished::default();
    finished.add("cargo test --test compile_fail", test::stream(cargo)?);
    Ok(finished.or_nothing_ran())
}
