//! The step `deny`: `deny.toml` allows the licences, sources, bans and duplicates of all dependencies.
//!
//! Advisories need RustSec's database from GitHub, which a gate without a network cannot fetch. With a network, run
//! `cargo deny check advisories`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::cargo;
use crate::repo;

/// The cargo-deny release for which `deny.toml` is written.
const VERSION: &str = "0.20.2";

/// Runs cargo-deny; builds it into the target folder first if it is missing.
pub(super) fn check(root: &Path) -> Result<()> {
    let program = program(root)?;
    // Checks only the locked dependencies, because the gate checks the committed state.
    let words = ["--locked", "--all-features", "check", "--hide-inclusion-graph", "licenses", "sources", "bans"];
    let mut command = Command::new(&program);
    let status = command.current_dir(root).args(words).status();
    let status = status.with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(status.success(), "`cargo deny {}` ended with {status}; deny.toml lists what is allowed", words.join(" "));
    Ok(())
}

fn program(root: &Path) -> Result<PathBuf> {
    let tools = repo::target_folder(root)?.join("tools");
    let program = tools.join("bin/cargo-deny");
    if is_right(&program) {
        return Ok(program);
    }
    let installed = PathBuf::from("cargo-deny");
    if is_right(&installed) {
        return Ok(installed);
    }
    println!("building cargo-deny {VERSION} into {}", tools.display());
    let tools = tools.to_string_lossy();
    let build = format!("{tools}/build");
    let wanted = format!("cargo-deny@{VERSION}");
    cargo(&["install", "--quiet", "--locked", "--root", &tools, "--target-dir", &build, &wanted], &[])?;
    Ok(program)
}

/// Whether the program exists with this release.
fn is_right(program: &Path) -> bool {
    let output = Command::new(program).arg("--version").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == format!("cargo-deny {VERSION}"))
}
