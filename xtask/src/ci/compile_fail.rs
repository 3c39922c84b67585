//! The step `compile-fail`: programs that must not compile, and the errors that rustc prints of them.
//!
//! The texts are those of one release of rustc, so they are compared with this release alone.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::table::Finished;
use crate::{repo, test, toolchain};

/// The test, which other runs ignore.
const TEST: &str = "misuse_does_not_compile";
/// The release.
const RELEASE: &str = "1.95.0";

/// Runs the test, with the installed compiler if it is of this release.
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
    // By the features of the whole workspace, as the other tests are built.
    cargo.args(["test", "--workspace", "--test", "repo", TEST, "--", "--ignored"]);
    let mut finished = Finished::default();
    finished.add("cargo test --test repo", test::stream(cargo)?);
    Ok(finished.or_nothing_ran())
}
