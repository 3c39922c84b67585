//! Toolchains beside the one that builds this, by way of rustup.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::packages::Install;
use crate::repo;

/// A toolchain, or a part of one, that is not there and cannot be had; the words by which rustup installs it.
#[derive(Debug)]
pub(crate) struct Missing(Vec<String>);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(words) = self;
        write!(f, "its toolchain is not installed (rustup {})", words.join(" "))
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
    install(&["toolchain", "install", name, "--no-self-update", "--profile", "minimal"], is_there)
}

/// The same of the standard library for another platform, of the toolchain that builds this.
///
/// # Errors
///
/// As [`require`].
pub(crate) fn require_target(target: &str) -> Result<()> {
    let is_there = || {
        let folder = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
        folder.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
    };
    install(&["target", "add", target], is_there)
}

/// Has rustup install what is not there, where that is allowed.
fn install(words: &[&str], is_there: impl Fn() -> bool) -> Result<()> {
    let missing = || Err(Missing(words.iter().copied().map(str::to_owned).collect()).into());
    if is_there() {
        return Ok(());
    }
    if !Install::InCiOrAsRoot.allowed() {
        return missing();
    }
    let status = match Command::new("rustup").args(words).status() {
        Ok(status) => status,
        // A toolchain of the distribution's.
        Err(error) if error.kind() == ErrorKind::NotFound => return missing(),
        Err(error) => return Err(error).context("cannot run rustup"),
    };
    if !status.success() {
        println!("rustup {}: {status}", words.join(" "));
    }
    if is_there() { Ok(()) } else { missing() }
}
