//! The step `msrv`: the public crates build with the oldest Rust that they promise (`rust-version`).
//!
//! Where that toolchain cannot be had there is clippy's `incompatible_msrv` alone, which knows what the standard library had when, and
//! nothing of the language.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::public;
use crate::{repo, toolchain};

/// Builds them.
pub(super) fn check(root: &Path) -> Result<()> {
    let metadata = repo::metadata(root, false)?;
    let versions =
        metadata["packages"].as_array().into_iter().flatten().filter_map(|package| package["rust_version"].as_str());
    let oldest = versions.min_by_key(|version| number(version)).context("no package says its rust-version")?;
    toolchain::require(root, oldest)?;
    let crates = public::crates(root, &[])?;
    let mut command = repo::toolchain_cargo(root, oldest);
    command.arg("check").args(public::arguments(&crates)).args(["--all-features", "--target-dir", "target/msrv"]);
    let status = command.status().context("cannot run cargo")?;
    ensure!(status.success(), "with Rust {oldest}, which `rust-version` promises: {status}");
    Ok(())
}

/// `1.88` as numbers that can be compared.
fn number(version: &str) -> Vec<u32> {
    version.split('.').map_while(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        assert!(number("1.9") < number("1.88"));
    }
}
