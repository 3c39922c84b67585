//! Toolchains beside the one that builds this, by way of rustup.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::packages::Install;
use crate::repo;

/// A toolchain that is not there and cannot be had.
#[derive(Debug)]
pub(crate) struct Missing(String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name) = self;
        write!(f, "its toolchain is not installed (rustup toolchain install {name} --profile minimal)")
    }
}

impl std::error::Error for Missing {}

/// Sees that the toolchain of this name is there; in CI, and for root, it is installed where it is not.
///
/// # Errors
///
/// [`Missing`], for example without a network.
pub(crate) fn require(root: &Path, name: &str) -> Result<()> {
    let is_there = || {
        let version = repo::toolchain_cargo(root, name).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    let missing = || Err(Missing(name.to_owned()).into());
    if is_there() {
        return Ok(());
    }
    if !Install::InCiOrAsRoot.allowed() {
        return missing();
    }
    let words = ["toolchain", "install", name, "--no-self-update", "--profile", "minimal"];
    let status = Command::new("rustup").args(words).status().context("cannot run rustup")?;
    if !status.success() {
        println!("rustup {}: {status}", words.join(" "));
    }
    if is_there() { Ok(()) } else { missing() }
}
