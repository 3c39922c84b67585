//! The crates that are published: those of the workspace whose manifests do not forbid it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::features;
use crate::repo;

/// What the steps need to know of one.
#[derive(Debug)]
pub(super) struct Crate {
    pub(super) name: String,
    pub(super) folder: PathBuf,
    pub(super) features: Vec<String>,
}

/// All of them, and those with the other names.
pub(super) fn crates(root: &Path, others: &[&str]) -> Result<Vec<Crate>> {
    let metadata = repo::metadata(root, false)?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let mut crates = Vec::new();
    // `publish` is null where nothing forbids it, and an empty list where it is false.
    let is_meant = |package: &&Value| {
        package["publish"].is_null() || package["name"].as_str().is_some_and(|name| others.contains(&name))
    };
    for package in packages.iter().filter(is_meant) {
        let name = package["name"].as_str().context("a package without a name")?.to_owned();
        let manifest = Path::new(package["manifest_path"].as_str().context("a package without a manifest")?);
        let folder = manifest.parent().context("a manifest in no folder")?.to_path_buf();
        crates.push(Crate { name, folder, features: features::of(package)? });
    }
    ensure!(crates.len() > others.len(), "no crate of the workspace is published");
    for other in others {
        ensure!(crates.iter().any(|package| package.name == *other), "the workspace has no package {other}");
    }
    Ok(crates)
}

/// `--package NAME` for each.
pub(super) fn arguments(crates: &[Crate]) -> Vec<&str> {
    crates.iter().flat_map(|package| ["--package", package.name.as_str()]).collect()
}
