//! The functions of libibverbs and librdmacm under their C names, for the libraries that export them: `capi`, which C
//! programs link, and `softrnic/preload`, which overrides or replaces the system's.
//!
//! [`functions!`] generates the functions from the lists in `rdma-mummy-sys`. `passed` has the names missing in those
//! lists: rsockets, and the internal interface between rdma-core's libraries and drivers.
#![recursion_limit = "256"] // The lists of names recurse once per name.

mod functions;
#[cfg(feature = "passed")]
mod passed;

#[doc(hidden)]
pub use rdma_mummy_sys;

pub use functions::{close_device, types};
