//! The manual: guides to this crate, in modules without items.
//!
//! First steps:
//!
//! - [`getting_started`]: a first program without a NIC, its objects, and what changes on a device.
//! - [`from_c`]: from C to this crate, verb by verb, in the order of a typical program.
//!
//! Writing robust programs:
//!
//! - [`memory`]: what is unsafe and why, what a peer can do, and when a program may reuse a buffer.
//! - [`threads`]: polling and sleeping, in threads and in async runtimes; which objects are `Send` and `Sync`.
//! - [`ownership`]: which objects keep which other objects alive, and when each object is destroyed.
//! - [`teardown`]: time-outs, dead peers, and memory that the device may still write.
//! - [`hot_path`]: posting and polling as fast as in C.
//! - [`gpu`]: registering GPU memory, and what a completion guarantees for data in it.
//!
//! Testing, deploying and porting:
//!
//! - [`testing`]: testing on a software NIC, also in CI, and injecting faults.
//! - [`deploying`]: packages, kernel modules, permissions and versions.
//! - [`porting`]: from sideway 0.4 on crates.io, and from the `ibverbs` crate.
//!
//! Reference:
//!
//! - [`errors`]: failures by symptom, with usual causes and remedies.
//! - [`quirks`]: faults of drivers and library versions, and how this crate handles them.
//! - [`coverage`]: the Rust item and the tests for each function of libibverbs; [`coverage_rdmacm`]: the Rust items and
//!   tests for librdmacm.
//!
//! All examples run on the software NIC as doctests, unless marked otherwise.

pub mod coverage {
    #![doc = include_str!("coverage.md")]
}
pub mod coverage_rdmacm {
    #![doc = include_str!("coverage_rdmacm.md")]
}
pub mod deploying;
pub mod errors;
pub mod from_c;
pub mod getting_started;
pub mod gpu;
pub mod hot_path;
pub mod memory;
pub mod ownership;
pub mod porting;
pub mod quirks;
pub mod teardown;
pub mod testing {
    #![doc = include_str!("testing.md")]
}
pub mod threads;
