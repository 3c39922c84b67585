//! `struct ibv_mw`.

use std::ffi::c_int;
use std::sync::Arc;

use rdma_mummy_sys::{ibv_mw, ibv_mw_type, ibv_pd};

use super::context::Context;
use super::failure;
use super::kind::Kind;
use super::object::Object;
use super::protection_domain::ProtectionDomain;
use crate::mem::{Memory, Window};
use crate::sys::errno::Errno;
use crate::sys::usage::Use;

/// A memory window.
#[repr(C)]
pub(crate) struct MemoryWindow {
    pub(crate) c: ibv_mw,
    pub(crate) window: Arc<Window>,
    pub(crate) uses: Vec<Use>,
}

// SAFETY: a `MemoryWindow` starts with an `ibv_mw`.
unsafe impl Object for MemoryWindow {
    type C = ibv_mw;
}

/// `ibv_alloc_mw`, as an operation of the context.
///
/// # Safety
///
/// `pd` is alive.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    let is_type_2 = match kind {
        ibv_mw_type::IBV_MW_TYPE_1 => false,
        ibv_mw_type::IBV_MW_TYPE_2 => true,
        _ => return failure::null(Errno::INVALID),
    };
    // SAFETY: guaranteed by the caller.
    let domain = unsafe { ProtectionDomain::of(pd) };
    // SAFETY: the context of a live domain is alive.
    if unsafe { Kind::of(domain.c.context) }.limits.max_mw == 0 {
        return failure::null(Errno::NOT_SUPPORTED);
    }
    // SAFETY: the context of a live domain is alive.
    let context = unsafe { Context::of(domain.c.context) };
    match Memory::of_process().window(&domain.domain, is_type_2) {
        Ok(window) => {
            let c = ibv_mw { context: domain.c.context, pd, rkey: window.key(), handle: context.handle(), type_: kind };
            MemoryWindow { c, window, uses: vec![domain.usage.begin()] }.into_c()
        }
        Err(errno) => failure::null(errno),
    }
}

/// `ibv_dealloc_mw`, as an operation of the context. Unbinds a bound window.
///
/// # Safety
///
/// `mw` is alive, and is not used again if this succeeds.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: guaranteed by the caller.
    let object = unsafe { MemoryWindow::of(mw) };
    if let Err(errno) = Memory::of_process().free_window(&object.window) {
        return failure::code(errno);
    }
    // SAFETY: guaranteed by the caller: this was the last use.
    drop(unsafe { MemoryWindow::from_c(mw) });
    0
}
