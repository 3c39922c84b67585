//! Shared code of the tests.

pub mod called;
pub mod child;
pub mod completion_log;
pub mod connections;
pub mod datagrams;
pub mod device;
pub mod errors;
pub mod headers;
pub mod hosts;
pub mod interface;
pub mod loopback;
pub mod process;
pub mod programs;
pub mod recording;
pub mod requirements;
pub mod resources;
pub mod shim;
pub mod usage;
mod waiting;

/// Compiles the code of the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// Runs the code of sideway's README.
#[cfg(doctest)]
#[doc = include_str!("../../sideway/README.md")]
pub struct SidewayReadme;

/// Compiles and runs the code of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../docs/testing.md")]
pub struct Testing;
