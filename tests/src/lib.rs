//! What the tests share.

pub mod called;
pub mod child;
pub mod completion_log;
pub mod connections;
pub mod datagrams;
pub mod device;
pub mod headers;
pub mod interface;
pub mod loopback;
pub mod process;
pub mod programs;
pub mod recording;
pub mod requirements;
pub mod resources;
pub mod shim;
mod waiting;

/// The code of the README is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// So is that of sideway's own, which runs.
#[cfg(doctest)]
#[doc = include_str!("../../sideway/README.md")]
pub struct SidewayReadme;
