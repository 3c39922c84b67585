//! The step `msrv`: the public crates build with the oldest Rust that they promise (`rust-version`).
//!
//! Where that toolchain cannot be had there is clippy's `incompatible_msrv` alone, which knows what the standard library had when, and
//! nothing of the language.

use std::path::Path;

use anyhow::{Context, Result};

use super::published;
use crate::record::Record;
use crate::{repo, toolchain};

/// Builds them.
pub(super) fn check(root: &Path, record: &Record) -> Result<()> {
    let versions = record.packages.iter().filter_map(|package| package.rust_version.as_deref());
    let oldest = versions.min_by_key(|version| number(version)).context("no package says its rust-version")?;
    toolchain::require(root, oldest)?;
    let mut command = repo::toolchain_cargo(root, oldest);
    command.args(["check", "--all-features", "--target-dir", "target/msrv"]);
    command.args(published(record).iter().flat_map(|package| ["--package", &package.name]));
    repo::build(command).with_context(|| format!("Rust {oldest}, which `rust-version` promises"))
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
