//! The manual: documentation only, no items.
//!
//! - [`ownership`]: what keeps what alive, and what is dropped when.
//! - [`hot_path`]: posting and polling without a wasted instruction.
//! - [`quirks`]: faults of drivers and versions, and what is done about them.
//! - [`teardown`]: ending things: time-outs, dead peers, and memory that a device may still write.
//! - [`coverage`]: what each function of libibverbs is here, and which test runs it; [`coverage_rdmacm`]: the same of
//!   librdmacm.

pub mod coverage;
pub mod coverage_rdmacm;
pub mod hot_path;
pub mod ownership;
pub mod quirks;
pub mod teardown;
