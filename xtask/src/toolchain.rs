//! Additional toolchains, through rustup.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::packages;
use crate::repo;

/// A toolchain, or a part of one, that is missing and cannot be installed; the arguments with which rustup installs it.
#[derive(Debug)]
pub(crate) struct Missing(Vec<String>);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(words) = self;
        write!(f, "its toolchain is not installed (rustup {})", words.join(" "))
    }
}

impl std::error::Error for Missing {}

/// Ensures that the toolchain of this name is installed; with `--install` or `CI=true` rustup installs it.
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

/// The nightly toolchain of all steps and rings that need one: `api` reads its rustdoc JSON, whose format changes.
const NIGHTLY: &str = "nightly-2026-05-20";
/// The date of the toolchain's last commit, which identifies it under another name.
const NIGHTLY_COMMIT: &str = "commit-date: 2026-05-19";

/// The name of the nightly toolchain that all steps and rings share, with these components of rustup.
///
/// # Errors
///
/// As [`require`].
pub(crate) fn nightly(root: &Path, components: &[&str]) -> Result<String> {
    let version = Command::new("rustc").args(["+nightly", "-vV"]).env_remove("RUSTUP_TOOLCHAIN").output();
    let is_same = version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(NIGHTLY_COMMIT));
    let name = if is_same { "nightly" } else { NIGHTLY };
    require(root, name)?;
    for component in components {
        let is_there = || {
            let mut list = Command::new("rustup");
            list.args(["component", "list", "--installed", "--toolchain", name]);
            list.output().is_ok_and(|output| {
                String::from_utf8_lossy(&output.stdout).lines().any(|line| line.starts_with(component))
            })
        };
        install(&["component", "add", "--toolchain", name, component], is_there)?;
    }
    Ok(name.to_owned())
}

/// The output of a toolchain's compiler about itself.
pub(crate) fn printed(toolchain: &str, what: &str) -> Result<String> {
    let mut command = Command::new("rustc");
    command
        .args([&format!("+{toolchain}"), "--print", what])
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("LD_LIBRARY_PATH");
    let output = command.output().context("cannot run rustc")?;
    anyhow::ensure!(output.status.success(), "rustc --print {what} ended with {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Ensures that the standard library for another platform is installed, for the toolchain that builds this.
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

/// Lets rustup install what is missing, if that is allowed.
fn install(words: &[&str], is_there: impl Fn() -> bool) -> Result<()> {
    let missing = || Err(Missing(words.iter().copied().map(str::to_owned).collect()).into());
    if is_there() {
        return Ok(());
    }
    if !packages::may_install() {
        return missing();
    }
    let status = match Command::new("rustup").args(words).status() {
        Ok(status) => status,
        // The distribution's toolchain has no rustup.
        Err(error) if error.kind() == ErrorKind::NotFound => return missing(),
        Err(error) => return Err(error).context("cannot run rustup"),
    };
    if !status.success() {
        println!("rustup {}: {status}", words.join(" "));
    }
    if is_there() { Ok(()) } else { missing() }
}
