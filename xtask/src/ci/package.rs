//! The step `package`: each public crate builds from what would be uploaded, its siblings being those that would be uploaded
//! beside it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result};

use super::{cargo, published};
use crate::record::Record;
use crate::repo::Package;

const TARGET: &str = "target/packages";

/// Packs and builds them together, which makes cargo take each from the others' packages.
pub(super) fn check(root: &Path, record: &Record) -> Result<()> {
    let crates = published(record);
    if let Some(home) = cargo_home() {
        forget(&home.join("registry/src"), &crates)?;
    }
    // What was built of them goes too, for the same reason.
    let built = root.join(TARGET);
    if built.exists() {
        fs::remove_dir_all(&built).with_context(|| format!("cannot remove {}", built.display()))?;
    }
    let mut words = vec!["package", "--allow-dirty", "--quiet", "--target-dir", TARGET];
    words.extend(crates.iter().flat_map(|package| ["--package", package.name.as_str()]));
    cargo(&words, &[])
}

fn cargo_home() -> Option<PathBuf> {
    env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")))
}

/// Removes what an earlier run has unpacked: cargo knows it by name, version and the folder of the packages, and would take it for
/// what it packs now.
fn forget(sources: &Path, crates: &[&Package]) -> Result<()> {
    let Ok(registries) = fs::read_dir(sources) else { return Ok(()) };
    for registry in registries.flatten() {
        // One on this machine: it has no host.
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
    fn what_was_unpacked_of_a_crate_is_known() {
        assert!(is_version_of(OsStr::new("softrnic-0.5.0"), "softrnic"));
        assert!(!is_version_of(OsStr::new("softrnic-preload-0.5.0"), "softrnic"));
        assert!(!is_version_of(OsStr::new("softrnic"), "softrnic"));
    }

    #[test]
    fn only_our_own_of_a_registry_on_this_machine_goes() {
        let sources = env::temp_dir().join(format!("xtask-package-{}", std::process::id()));
        for folder in ["-1/softrnic-0.5.0", "-1/libc-0.2.0", "crates.io-1/softrnic-0.5.0"] {
            fs::create_dir_all(sources.join(folder)).unwrap();
        }
        let known = Package { name: "softrnic".into(), ..Package::default() };
        forget(&sources, &[&known]).unwrap();
        assert!(!sources.join("-1/softrnic-0.5.0").exists());
        assert!(sources.join("-1/libc-0.2.0").exists() && sources.join("crates.io-1/softrnic-0.5.0").exists());
        fs::remove_dir_all(sources).unwrap();
    }
}
