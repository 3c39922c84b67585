//! The step `aarch64`: all libraries and programs build for AArch64, for which a few files have special code; the crates
//! that have no code for one processor also build for 32-bit x86, where `usize` is shorter than the lengths of peers.
//!
//! The step needs no linker for AArch64, and runs nothing there. On x86-64, the unit tests of three crates run with 32 bits.

use anyhow::Result;

use super::cargo;
use crate::{packages, toolchain};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const OF_32_BITS: &str = "i686-unknown-linux-gnu";

/// Builds the static library for C programs, which contains the assembly, and checks the rest.
pub(super) fn check() -> Result<()> {
    toolchain::require_target(TARGET)?;
    cargo(&["build", "--target", TARGET, "--package", "rdma-mummy-capi"], &[])?;
    let others = ["sideway", "stride-perf", "softrnic-preload", "rdma-lens-cli", "sideway-examples"];
    let mut words = vec!["check", "--target", TARGET, "--all-features"];
    words.extend(others.iter().flat_map(|package| ["--package", package]));
    cargo(&words, &[])?;
    toolchain::require_target(OF_32_BITS)?;
    let mut words = vec!["check", "--target", OF_32_BITS];
    let crates = ["sideway", "softrnic", "trespass-capi", "trespass-rpc", "stride-perf", "rdma-lens-cli", "xsk"];
    words.extend(crates.iter().flat_map(|package| ["--package", package]));
    cargo(&words, &[])?;
    if !cfg!(target_arch = "x86_64") {
        return Ok(());
    }
    packages::require("running tests with 32 bits", &[packages::LINKING_32_BITS])?;
    let mut words = vec!["test", "--target", OF_32_BITS, "--lib"];
    words.extend(["sideway", "softrnic", "trespass"].iter().flat_map(|package| ["--package", package]));
    cargo(&words, &[])
}
