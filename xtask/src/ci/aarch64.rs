//! The step `aarch64`: what programs are built from is so for AArch64 too, for which a few files have code of their own.
//!
//! It needs no linker for that processor, and runs nothing.

use anyhow::Result;

use super::cargo;
use crate::toolchain;

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Builds the library for C programs, a static one, in which the assembly is; and checks the others.
pub(super) fn check() -> Result<()> {
    toolchain::require_target(TARGET)?;
    cargo(&["build", "--target", TARGET, "--package", "rdma-mummy-capi"], &[])?;
    let others = ["sideway", "stride-perf", "softrnic-preload", "sideway-examples"];
    let mut words = vec!["check", "--target", TARGET, "--all-features"];
    words.extend(others.iter().flat_map(|package| ["--package", package]));
    cargo(&words, &[])
}
