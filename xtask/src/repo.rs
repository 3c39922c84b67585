//! Where things are: the repository, its build folder, the folder of the guest's prepared files.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// The root of the checkout: the parent of this package.
///
/// `cargo run` names the package in the environment; the path noted at compile time serves a copied binary.
pub(crate) fn root() -> Result<PathBuf> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map(PathBuf::from)
        .filter(|path| path.ends_with("xtask"))
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    let root = package.parent().context("the xtask package has no parent folder")?;
    ensure!(
        root.join("Cargo.toml").is_file(),
        "{} is not the repository: call `cargo xtask` inside it",
        root.display()
    );
    Ok(root.to_path_buf())
}

/// `target/softroce` of the checkout, made when missing: kernels, initial RAM disks, logs.
///
/// It stays in the checkout even when `CARGO_TARGET_DIR` points elsewhere, so that all builds share one kernel.
pub(crate) fn softroce_folder() -> Result<PathBuf> {
    let folder = root()?.join("target/softroce");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// A `cargo` command that runs in the root of the checkout, by the same cargo that runs this program.
///
/// What `cargo run` has set for xtask itself is taken out, or each package's build would see it.
pub(crate) fn cargo(root: &Path) -> Command {
    cleaned(Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())), root)
}

/// The same of the nightly toolchain, by way of rustup.
pub(crate) fn nightly_cargo(root: &Path) -> Command {
    toolchain_cargo(root, "nightly")
}

/// The same of the toolchain of this name.
pub(crate) fn toolchain_cargo(root: &Path, toolchain: &str) -> Command {
    // Not `$CARGO`, which is of one toolchain, nor the tools that it names.
    let mut command = cleaned(Command::new("cargo"), root);
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN", "LD_LIBRARY_PATH"] {
        command.env_remove(name);
    }
    command.arg(format!("+{toolchain}"));
    command
}

fn cleaned(mut command: Command, root: &Path) -> Command {
    command.current_dir(root);
    for (name, _) in std::env::vars_os().filter(|(name, _)| set_by_cargo_run(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command
}

/// Whether `cargo run` sets this variable to describe the package that it runs.
pub(crate) fn set_by_cargo_run(name: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"].iter().any(|prefix| name.starts_with(prefix))
        || name == "CARGO_PRIMARY_PACKAGE"
}

/// What `cargo metadata` says about the workspace; with `dependencies`, also the whole resolved graph.
pub(crate) fn metadata(root: &Path, dependencies: bool) -> Result<Value> {
    let mut command = cargo(root);
    command.args(["metadata", "--format-version=1"]);
    // For one platform: the graph of all would download what other systems need.
    command.args(if dependencies {
        ["--filter-platform", "x86_64-unknown-linux-gnu"].as_slice()
    } else {
        &["--no-deps"]
    });
    let output = command.stderr(std::process::Stdio::inherit()).output().context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata ended with {}", output.status);
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata printed what is not JSON")
}

/// The folder that cargo builds into.
pub(crate) fn target_folder(root: &Path) -> Result<PathBuf> {
    let metadata = metadata(root, false)?;
    let folder = metadata["target_directory"].as_str().context("cargo metadata names no target_directory")?;
    Ok(PathBuf::from(folder))
}

/// Builds stride-perf; where it lies.
pub(crate) fn stride(root: &Path) -> Result<PathBuf> {
    let status = cargo(root).args(["build", "--release", "--package", "stride-perf"]).status();
    let status = status.context("cannot run cargo")?;
    ensure!(status.success(), "building stride-perf: {status}");
    Ok(target_folder(root)?.join("release/stride-perf"))
}
