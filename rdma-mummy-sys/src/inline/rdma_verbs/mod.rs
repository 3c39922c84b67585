//! Simplified verbs of a connection identifier, which use its queues and protection domain.
//!
//! All but the registration functions return -1 on failure and set `errno`.

mod completion;
mod memory;
mod post;

use core::ffi::c_int;

pub use completion::*;
pub use memory::*;
pub use post::*;

use super::set_errno;

/// Converts a verb's return value to that of a librdmacm function: zero stays zero; an errno value is stored in `errno`
/// and becomes -1.
#[inline]
pub fn rdma_seterrno(ret: c_int) -> c_int {
    if ret == 0 {
        return 0;
    }
    set_errno(ret);
    -1
}
