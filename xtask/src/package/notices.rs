//! The licences of what programs are linked from: most of them require that copies include their text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::put;
use crate::repo;

/// How the names of files with licences begin.
const NAMES: [&str; 4] = ["LICENSE", "LICENCE", "COPYING", "NOTICE"];

/// The licences of Rust's standard library, in a toolchain.
const STANDARD: &str = "COPYRIGHT-library.html";

/// Writes the licences of all packages that these packages are linked from into one file, each text once.
pub(super) fn write(root: &Path, packages: &[&str], file: &Path) -> Result<()> {
    let mut owners: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, (folder, license)) in linked(root, packages)? {
        let mut texts = texts(&folder)?;
        if texts.is_empty() {
            texts.push(format!("{license} (the package has no text of it)"));
        }
        for text in texts {
            owners.entry(text).or_default().insert(name.clone());
        }
    }
    let mut all = String::from("The programs and libraries are linked from these packages, under these licences.\n");
    for (text, names) in owners {
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        write!(all, "\n{:=<80}\n{names}\n{:-<80}\n\n{}\n", "", "", text.trim_end()).context("cannot write a text")?;
    }
    fs::write(file, all).with_context(|| format!("cannot write {}", file.display()))?;
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().context("cannot run rustc")?;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let standard = sysroot.join("share/doc/rust").join(STANDARD);
    // A toolchain of a distribution has it in another package, or not at all.
    if standard.is_file() { put(&standard, &file.with_file_name(STANDARD)) } else { Ok(()) }
}

/// The names and versions of the foreign packages that these are linked from, with their folders and licences.
fn linked(root: &Path, packages: &[&str]) -> Result<BTreeMap<String, (PathBuf, String)>> {
    let mut cargo = repo::cargo(root);
    cargo.args(["tree", "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"]);
    cargo.args(packages.iter().flat_map(|name| ["--package", name]));
    let output = cargo.output().context("cannot run cargo tree")?;
    ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8_lossy(&output.stdout).into_owned();
    let metadata = repo::metadata(root, true)?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut folders = BTreeMap::new();
    for package in metadata["packages"].as_array().context("cargo metadata names no packages")? {
        let name = format!("{} v{}", text(&package["name"]), text(&package["version"]));
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        let is_foreign = !package["source"].is_null();
        if is_foreign && tree.lines().any(|line| line.trim_end_matches(" (*)") == name) {
            let folder = manifest.parent().unwrap_or(root).to_path_buf();
            folders.insert(name, (folder, text(&package["license"])));
        }
    }
    let is_lacking = |line: &&str| !line.is_empty() && !line.contains(" (/") && !folders.contains_key(*line);
    let lacking = tree.lines().map(|line| line.trim_end_matches(" (*)")).find(is_lacking);
    ensure!(lacking.is_none(), "cargo metadata lacks {lacking:?}");
    Ok(folders)
}

/// The texts of the licences in a folder.
fn texts(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let files = entries.flatten().map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        path.is_file() && NAMES.iter().any(|start| name.starts_with(start))
    });
    files.map(|file| fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))).collect()
}

#[cfg(test)]
mod tests {
    use sideway_test_names::Folder;

    use super::*;

    #[test]
    fn licences_of_foreign_packages_are_listed() {
        let folder = Folder::new();
        let file = folder.join("copyright");
        write(&repo::root().unwrap(), &["softrnic-preload"], &file).unwrap();
        let text = fs::read_to_string(file).unwrap();
        assert!(text.contains("libc v") && text.contains("Permission is hereby granted"));
        assert!(!text.contains("softrnic v"));
    }
}
