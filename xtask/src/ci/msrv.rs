//! The step `msrv`: the public crates build with their oldest supported Rust (`rust-version`).
//!
//! Without that toolchain, only clippy's `incompatible_msrv` applies. This lint covers the standard library, not the
//! language.

use std::path::Path;

use anyhow::{Context, Result};

use super::published;
use crate::repo::Package;
use crate::{repo, toolchain};

/// Builds the public crates.
pub(super) fn check(root: &Path, packages: &[Package]) -> Result<()> {
    let versions = packages.iter().filter_map(|package| package.rust_version.as_deref());
    let oldest = versions.min_by_key(|version| number(version)).context("no package has a rust-version")?;
    toolchain::require(root, oldest)?;
    let mut command = repo::toolchain_cargo(root, oldest);
    command.args(["check", "--all-features", "--target-dir", "target/msrv"]);
    command.args(published(packages).iter().flat_map(|package| ["--package", &package.name]));
    repo::build(command).with_context(|| format!("Rust {oldest}, the `rust-version`"))
}

/// `1.88` as comparable numbers.
fn number(version: &str) -> Vec<u32> {
    version.split('.').map_while(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_parse_as_numbers() {
        assert!(number("1.9") < number("1.88"));
    }
}
