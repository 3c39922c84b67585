//! The step `aarch64`: all libraries and programs build for AArch64, for which a few files have special code; the crates
//! that have no code for one processor also build for 32-bit x86, where `usize` is shorter than the lengths of peers.
//!
//! The step needs no linker for these processors, and runs nothing.

use anyhow::Result;

use super::cargo;
use crate::toolchain;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const OF_32_BITS: &str = "i686-unknown-linux-gnu";

/// Builds the static library for C programs, which contains the assembly, and checks the rest.
pub(super) fn check() -> Result<()> {
    toolchain::require_target(TARGET)?;
    cargo(&["build", "--target", TARGET, "--package", "rdma-mummy-capi"], &[])?;
    let others = ["sideway", "stride-perf", "softrnic-preload", "sideway-examples"];
    let mut words = vec!["check", "--target", TARGET, "--all-features"];
    words.extend(others.iter().flat_map(|package| ["--package", package]));
    cargo(&words, &[])?;
    toolchain::require_target(OF_32_BITS)?;
    let mut words = vec!["check", "--target", OF_32_BITS];
    let crates = ["sideway", "softrnic", "trespass-capi", "trespass-rpc", "stride-perf", "xsk"];
    words.extend(crates.iter().flat_map(|package| ["--package", package]));
    cargo(&words, &[])
}
