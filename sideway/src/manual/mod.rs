//! The manual: documentation only, no items.
//!
//! To begin with:
//!
//! - [`getting_started`]: RDMA without a NIC: a first program, its objects, and what a device changes.
//! - [`from_c`]: from C to this crate, verb by verb in the order in which a program calls them.
//!
//! To write programs that hold:
//!
//! - [`memory`]: what is unsafe and why, what a peer can do, and when memory may be touched again.
//! - [`threads`]: polling and sleeping in threads and in async runtimes; what may go where.
//! - [`ownership`]: what keeps what alive, and what is dropped when.
//! - [`teardown`]: ending things: time-outs, dead peers, and memory that a device may still write.
//! - [`hot_path`]: posting and polling without a wasted instruction.
//! - [`gpu`]: registering the memory of GPUs, and what a completion means for it.
//!
//! To test, ship and port them:
//!
//! - [`testing`]: a program's own tests on a NIC in software, in CI too; faults on purpose.
//! - [`deploying`]: what the machine needs that a program runs on: packages, permissions, containers.
//! - [`porting`]: from sideway 0.4 of crates.io, and from the crate `ibverbs`.
//!
//! To look things up:
//!
//! - [`errors`]: what goes wrong, by symptom: causes, where to look, what to change.
//! - [`quirks`]: faults of drivers and versions, and what is done about them.
//! - [`coverage`]: what each function of libibverbs is here, and which test runs it; [`coverage_rdmacm`]: the same of
//!   librdmacm.
//!
//! Examples that do not say otherwise run, on the device in software, whenever the crate is tested.

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
