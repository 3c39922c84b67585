//! Toolchains beside the one that builds this, by way of rustup.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::packages::Install;
use crate::repo;

/// Whether the toolchain of this name is there; in CI, and for root, it is installed where it is not. Without a network it may not be
/// had, which is said and no failure.
pub(crate) fn require(root: &Path, name: &str) -> Result<bool> {
    let is_there = || {
        let version = repo::toolchain_cargo(root, name).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    if is_there() || !Install::InCiOrAsRoot.allowed() {
        return Ok(is_there());
    }
    let words = ["toolchain", "install", name, "--no-self-update", "--profile", "minimal"];
    let status = Command::new("rustup").args(words).status().context("cannot run rustup")?;
    if !status.success() {
        println!("rustup {}: {status}", words.join(" "));
    }
    Ok(is_there())
}
