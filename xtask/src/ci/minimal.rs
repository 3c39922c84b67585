//! The step `minimal`: the public crates build with the oldest dependencies that their manifests allow.
//!
//! cargo chooses these versions for the lock file of a whole workspace. So the step copies the public crates alone,
//! without their development dependencies, and uses a nightly toolchain's `-Z direct-minimal-versions`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::published;
use crate::repo::Package;
use crate::{repo, toolchain};

/// Builds the crates, if a nightly toolchain is installed.
pub(super) fn check(root: &Path, packages: &[Package]) -> Result<()> {
    let nightly = toolchain::nightly(root, &[])?;
    let crates = published(packages);
    let copy = repo::target_folder(root)?.join("minimal");
    make(root, &copy, &crates)?;
    let update: &[&str] = &["update", "-Z", "direct-minimal-versions", "--quiet"];
    let build = ["check", "--all-features", "--target-dir", "target"];
    for words in [update, &build] {
        let mut command = repo::toolchain_cargo(&copy, &nightly);
        command.args(words);
        repo::build(command).context("with the oldest dependencies")?;
    }
    Ok(())
}

/// Copies the public crates into a separate workspace.
fn make(root: &Path, copy: &Path, crates: &[&Package]) -> Result<()> {
    let mut members = Vec::new();
    for Package { folder, .. } in crates {
        let name = folder.strip_prefix(root).context("a package is not below the root")?;
        let target = copy.join(name);
        if target.exists() {
            fs::remove_dir_all(&target).with_context(|| format!("cannot remove {}", target.display()))?;
        }
        copy_folder(folder, &target)?;
        let manifest = target.join("Cargo.toml");
        let text = fs::read_to_string(&manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
        fs::write(&manifest, without_tests(&text)).with_context(|| format!("cannot write {}", manifest.display()))?;
        members.push(format!("{name:?}"));
    }
    let manifest = fs::read_to_string(root.join("Cargo.toml")).context("cannot read Cargo.toml")?;
    let manifest = with_members(&manifest, &members.join(", "))?;
    fs::write(copy.join("Cargo.toml"), manifest).context("cannot write the copy of Cargo.toml")?;
    Ok(())
}

/// The manifest of a workspace with only these members.
fn with_members(manifest: &str, members: &str) -> Result<String> {
    let (before, rest) = manifest.split_once("members = [").context("Cargo.toml names no members")?;
    let (_, after) = rest.split_once("\n]").context("the list of members does not end")?;
    let after = match after.split_once("default-members = [") {
        Some((between, rest)) => {
            let (_, after) = rest.split_once(']').context("the list of default members does not end")?;
            format!("{between}{after}")
        }
        None => after.to_owned(),
    };
    Ok(format!("{before}members = [{members}]{after}"))
}

/// A crate's manifest without its development dependencies, which users of the crate do not build.
fn without_tests(manifest: &str) -> String {
    let mut is_left_out = false;
    let kept = manifest.lines().filter(|line| {
        if line.starts_with('[') {
            is_left_out = line.starts_with("[dev-dependencies") || line.contains(".dev-dependencies");
        }
        !is_left_out
    });
    kept.flat_map(|line| [line, "\n"]).collect()
}

/// Copies a folder with its subfolders, except packages within the package.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if !path.is_dir() {
            fs::copy(&path, &target).with_context(|| format!("cannot copy {}", path.display()))?;
        } else if !path.join("Cargo.toml").exists() {
            copy_folder(&path, &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{with_members, without_tests};

    #[test]
    fn development_dependencies_are_left_out() {
        let manifest = "[dependencies]\na = \"1\"\n\n[dev-dependencies]\nb = \"1\"\n\n[dev-dependencies.c]\nversion = \"1\"\n\n[lints]\nworkspace = true\n";
        assert_eq!(without_tests(manifest), "[dependencies]\na = \"1\"\n\n[lints]\nworkspace = true\n");
        assert_eq!(without_tests("[target.'cfg(x)'.dev-dependencies]\nb = \"1\"\n[features]\n"), "[features]\n");
    }

    #[test]
    fn workspace_has_only_the_given_members() {
        let manifest = "[workspace]\nmembers = [\n  \"a\",\n  \"b\",\n]\n# why\ndefault-members = [\"a\"]\n\n[workspace.package]\n";
        let other = with_members(manifest, "\"c\"").unwrap();
        assert_eq!(other, "[workspace]\nmembers = [\"c\"]\n# why\n\n\n[workspace.package]\n");
        assert!(with_members("[workspace]\n", "").is_err());
    }
}
