//! `cargo xtask bindings`: writes the generated half of rdma-mummy-sys, or compares it.

use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::packages;
use crate::repo;

/// The generator.
const PROGRAM: &str = "rdma-mummy-sys-generator";

/// Generate rdma-mummy-sys/src/bindings from the installed rdma-core headers
///
/// Runs bindgen (the package rdma-mummy-sys-generator), which needs libclang and the headers of libibverbs and librdmacm. The
/// result is committed: building the crate needs none of this. With --check nothing is written.
#[derive(Args, Debug)]
pub(crate) struct Bindings {
    /// Compare with the committed files, and fail if they differ
    #[arg(long)]
    check: bool,
}

impl Bindings {
    /// The task with the gate's options.
    pub(crate) const CHECK: Self = Self { check: true };
}

/// Runs the task.
pub(crate) fn main(task: &Bindings) -> Result<()> {
    packages::require("generating the bindings", &[packages::BINDINGS])?;
    let root = repo::root()?;
    let mut command = repo::cargo(&root);
    // Builds with the features of the whole workspace, so that the tests share the build.
    command.args(["build", "--quiet", "--workspace", "--bin", PROGRAM]);
    repo::build(command)?;
    let mut command = Command::new(repo::target_folder(&root)?.join("debug").join(PROGRAM));
    if task.check {
        command.arg("--check");
    }
    let status = command.status().context("cannot run the generator")?;
    if !status.success() {
        let hint = if task.check { "; run `cargo xtask bindings` to update them" } else { "" };
        bail!("the generator ended with {status}{hint}");
    }
    Ok(())
}
