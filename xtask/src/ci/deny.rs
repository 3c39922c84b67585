//! The step `deny`: licences, sources, bans and duplicates of all dependencies, as `deny.toml` has them.
//!
//! Advisories need the database that RustSec keeps on GitHub, which a gate without a network cannot fetch:
//! `cargo deny check advisories` looks into it where there is one.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::cargo;
use crate::repo;

/// The release that `deny.toml` is written for.
const VERSION: &str = "0.20.2";

/// Runs cargo-deny, building it into the target folder where it is not there.
pub(super) fn check(root: &Path) -> Result<()> {
    let program = program(root)?;
    // Of what is locked: a gate looks at what is committed.
    let words = ["--locked", "--all-features", "check", "--hide-inclusion-graph", "licenses", "sources", "bans"];
    let mut command = Command::new(&program);
    let status = command.current_dir(root).args(words).status();
    let status = status.with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(
        status.success(),
        "`cargo deny {}` ended with {status}; what is allowed is said in deny.toml",
        words.join(" ")
    );
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

/// Whether the program is there and of this release.
fn is_right(program: &Path) -> bool {
    let output = Command::new(program).arg("--version").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == format!("cargo-deny {VERSION}"))
}
