//! `struct ibv_td`. With a thread domain, a program promises that only one thread at a time uses the objects of the
//! domain.

use std::ffi::c_int;

use rdma_mummy_sys::{ibv_context, ibv_td, ibv_td_init_attr};

use super::context::Context;
use super::failure;
use super::object::Object;
use crate::sys::errno::Errno;
use crate::sys::usage::{Usage, Use};

/// A thread domain, which has no effect on locking.
#[repr(C)]
pub(crate) struct ThreadDomain {
    pub(crate) c: ibv_td,
    /// The parent domains that use this domain.
    pub(crate) usage: Usage,
    pub(crate) uses: Vec<Use>,
}

// SAFETY: a `ThreadDomain` starts with an `ibv_td`.
unsafe impl Object for ThreadDomain {
    type C = ibv_td;
}

pub(crate) unsafe extern "C" fn alloc_td(context: *mut ibv_context, init_attr: *mut ibv_td_init_attr) -> *mut ibv_td {
    // SAFETY: the context belongs to this provider and is open, and the attributes are readable.
    let (open, attr) = unsafe { (Context::of(context), &*init_attr) };
    if attr.comp_mask != 0 {
        return failure::null(Errno::INVALID);
    }
    ThreadDomain { c: ibv_td { context }, usage: Usage::default(), uses: vec![open.usage.begin()] }.into_c()
}

pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: the domain belongs to this provider and is alive.
    if unsafe { ThreadDomain::of(td) }.usage.is_used() {
        return failure::code(Errno::BUSY);
    }
    // SAFETY: `alloc_td` created it, and the program no longer uses it.
    drop(unsafe { ThreadDomain::from_c(td) });
    0
}
