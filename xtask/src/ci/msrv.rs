//! The step `msrv`: the public crates build with the oldest Rust that they promise (`rust-version`).
//!
//! Without that toolchain there is clippy's `incompatible_msrv` alone, which knows what the standard library had when, and
//! nothing of the language.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::public;
use crate::repo;

/// Builds them where rustup has the toolchain, and says so where it has not.
pub(super) fn check(root: &Path) -> Result<()> {
    let metadata = repo::metadata(root, false)?;
    let versions =
        metadata["packages"].as_array().into_iter().flatten().filter_map(|package| package["rust_version"].as_str());
    let oldest = versions.min_by_key(|version| number(version)).context("no package says its rust-version")?;
    let Some(toolchain) = installed(oldest) else {
        println!(
            "skipped: Rust {oldest} is not installed (rustup toolchain install {oldest}); clippy looks for newer functions"
        );
        return Ok(());
    };
    let crates = public::crates(root)?;
    let mut command = repo::toolchain_cargo(root, &toolchain);
    command.arg("check").args(public::arguments(&crates)).args(["--all-features", "--target-dir", "target/msrv"]);
    let status = command.status().context("cannot run cargo")?;
    ensure!(status.success(), "with Rust {oldest}, which `rust-version` promises: {status}");
    Ok(())
}

/// `1.88` as numbers that can be compared.
fn number(version: &str) -> Vec<u32> {
    version.split('.').map_while(|part| part.parse().ok()).collect()
}

/// The toolchain of this version that rustup has.
fn installed(version: &str) -> Option<String> {
    let output = Command::new("rustup").args(["toolchain", "list"]).output().ok()?;
    of_version(&String::from_utf8_lossy(&output.stdout), version)
}

fn of_version(list: &str, version: &str) -> Option<String> {
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    let wanted = number(version);
    names.map(str::to_owned).find(|name| {
        let found = number(name.split('-').next().unwrap_or_default());
        found.len() >= wanted.len() && found[..wanted.len()] == wanted[..]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        assert!(number("1.9") < number("1.88"));
        let list = "stable-x86_64-unknown-linux-gnu (active)\n1.88.0-x86_64-unknown-linux-gnu\n";
        assert_eq!(of_version(list, "1.88").as_deref(), Some("1.88.0-x86_64-unknown-linux-gnu"));
        assert_eq!((of_version(list, "1.8"), of_version(list, "1.89")), (None, None));
    }
}
