//! The manual: documentation only, no items.
//!
//! - [`ownership`]: what keeps what alive, and what is dropped when.
//! - [`hot_path`]: posting and polling without a wasted instruction.
//! - [`quirks`]: faults of drivers and versions, and what is done about them.

pub mod hot_path;
pub mod ownership;
pub mod quirks;
