//! The short verbs of a connection identifier: its queues and its protection domain, without a work request to fill in.
//!
//! All but the registering ones return -1 and leave the reason in `errno`.

mod completion;
mod memory;
mod post;

use core::ffi::c_int;

pub use completion::*;
pub use memory::*;
pub use post::*;

use super::set_errno;

/// Turns the return value of a verb into that of a librdmacm function: zero stays, an errno becomes -1 and `errno`.
#[inline]
pub fn rdma_seterrno(ret: c_int) -> c_int {
    if ret == 0 {
        return 0;
    }
    set_errno(ret);
    -1
}
