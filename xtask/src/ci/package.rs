//! The step `package`: each public crate builds from the package to upload, with its siblings' packages as
//! dependencies. A package has what its users need, and nothing else.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, ensure};

use super::{cargo, published};
use crate::repo::{self, Package};

const TARGET: &str = "target/crates";
/// The files that every package has.
const REQUIRED: [&str; 5] = ["Cargo.toml", "Cargo.lock", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];
/// What cargo adds.
const ADDED: [&str; 2] = [".cargo_vcs_info.json", "Cargo.toml.orig"];

/// Packs and builds the crates together, so that cargo takes each dependency from the other packages.
pub(super) fn check(root: &Path, packages: &[Package]) -> Result<()> {
    let crates = published(packages);
    for package in &crates {
        let mut cargo = repo::cargo(root);
        cargo.args(["package", "--list", "--allow-dirty", "--quiet", "--package", &package.name]);
        let output = cargo.output().context("cannot run cargo package")?;
        ensure!(output.status.success(), "cargo package --list: {}", String::from_utf8_lossy(&output.stderr));
        let faults = faults(&String::from_utf8_lossy(&output.stdout));
        ensure!(faults.is_empty(), "the package {} {}", package.name, faults.join(", "));
    }
    if let Some(home) = cargo_home() {
        forget(&home.join("registry/src"), &crates)?;
    }
    // Build results of earlier runs are removed for the same reason.
    let built = root.join(TARGET);
    if built.exists() {
        fs::remove_dir_all(&built).with_context(|| format!("cannot remove {}", built.display()))?;
    }
    let mut words = vec!["package", "--allow-dirty", "--quiet", "--target-dir", TARGET];
    words.extend(crates.iter().flat_map(|package| ["--package", package.name.as_str()]));
    cargo(&words, &[])
}

/// What is wrong with the files of a package, one per line.
fn faults(list: &str) -> Vec<String> {
    let files: Vec<&str> = list.lines().collect();
    let missing = REQUIRED.iter().filter(|name| !files.contains(name)).map(|name| format!("lacks {name}"));
    let is_useful = |file: &&str| {
        ["src/", "examples/"].iter().any(|folder| file.starts_with(folder))
            || file.ends_with(".md")
            || REQUIRED.contains(file)
            || ADDED.contains(file)
    };
    let others = files.iter().filter(|file| !is_useful(file)).map(|file| format!("must not have {file}"));
    missing.chain(others).collect()
}

fn cargo_home() -> Option<PathBuf> {
    env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")))
}

/// Removes packages that an earlier run unpacked. cargo identifies them by name, version and the folder of the
/// packages, and would use them instead of the new ones.
fn forget(sources: &Path, crates: &[&Package]) -> Result<()> {
    let Ok(registries) = fs::read_dir(sources) else { return Ok(()) };
    for registry in registries.flatten() {
        // A registry on this machine has no host.
        if !registry.file_name().as_encoded_bytes().starts_with(b"-") {
            continue;
        }
        for package in fs::read_dir(registry.path()).into_iter().flatten().flatten() {
            if crates.iter().any(|known| is_version_of(&package.file_name(), &known.name)) {
                let path = package.path();
                fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
    }
    Ok(())
}

/// `NAME-1.2.3`.
fn is_version_of(folder: &OsStr, name: &str) -> bool {
    let version = folder.to_str().and_then(|folder| folder.strip_prefix(name)?.strip_prefix('-'));
    version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_licences_and_tests_are_faults() {
        let whole = [&REQUIRED[..], &ADDED, &["src/lib.rs", "examples/echo.rs", "WIRE.md"]].concat();
        assert_eq!(faults(&whole.join("\n")), [""; 0]);
        let list = whole.join("\n").replace("LICENSE-MIT", "tests/device/main.rs");
        assert_eq!(faults(&list), ["lacks LICENSE-MIT", "must not have tests/device/main.rs"]);
    }

    #[test]
    fn unpacked_crate_is_recognized() {
        assert!(is_version_of(OsStr::new("softrnic-0.5.0"), "softrnic"));
        assert!(!is_version_of(OsStr::new("softrnic-preload-0.5.0"), "softrnic"));
        assert!(!is_version_of(OsStr::new("softrnic"), "softrnic"));
    }

    #[test]
    fn only_own_crates_of_a_local_registry_are_removed() {
        let folder = sideway_test_names::Folder::new();
        let sources = folder.path();
        for folder in ["-1/softrnic-0.5.0", "-1/libc-0.2.0", "crates.io-1/softrnic-0.5.0"] {
            fs::create_dir_all(sources.join(folder)).unwrap();
        }
        let known = Package { name: "softrnic".into(), ..Package::default() };
        forget(sources, &[&known]).unwrap();
        assert!(!sources.join("-1/softrnic-0.5.0").exists());
        assert!(sources.join("-1/libc-0.2.0").exists() && sources.join("crates.io-1/softrnic-0.5.0").exists());
    }
}
