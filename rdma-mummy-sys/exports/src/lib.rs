//! The functions of libibverbs and librdmacm under their C names, for the libraries that export them: `capi`, which C programs
//! link, and `softrnic/preload`, which stands before or in the place of the system's.
//!
//! [`functions!`] makes the functions from the lists that `rdma-mummy-sys` has of them. `passed` has the names that no such list has:
//! rsockets, and what rdma-core's libraries and drivers take from each other.
#![recursion_limit = "256"] // The lists of names have one level a name.

mod functions;
#[cfg(feature = "passed")]
mod passed;

#[doc(hidden)]
pub use rdma_mummy_sys;

pub use functions::{close_device, types};
