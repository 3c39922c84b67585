//! XRC domains, which share receiving queue pairs among the processes of a host; thread domains, whose objects one
//! thread uses at a time; and parent domains, which contain them.

use core::ffi::c_int;

use libc::EOPNOTSUPP;

use super::{unsupported, verbs_get_ctx};
use crate::bindings::verbs::*;

/// Opens a domain, creating it first if requested. Returns null and sets errno on failure. See `ibv_open_xrcd(3)`.
///
/// # Safety
///
/// `context` is live and `xrcd_init_attr` can be read.
#[inline]
pub unsafe fn ibv_open_xrcd(context: *mut ibv_context, xrcd_init_attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd {
    // SAFETY: by contract the context is live; its operation receives this function's arguments.
    unsafe {
        match extended_op!(context, open_xrcd) {
            Some(open) => open(context, xrcd_init_attr),
            None => unsupported(),
        }
    }
}

/// Closes a domain. Returns zero or an errno value. See `ibv_close_xrcd(3)`.
///
/// # Safety
///
/// `xrcd` is live (so its provider has the operation), and is not used afterwards if this succeeds.
#[inline]
pub unsafe fn ibv_close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: by contract the domain is live: the extended table that opened it can close it.
    unsafe { ((*verbs_get_ctx((*xrcd).context)).close_xrcd.unwrap_unchecked())(xrcd) }
}

/// Creates a thread domain. Returns null and sets errno on failure. See `ibv_alloc_td(3)`.
///
/// # Safety
///
/// `context` is live and `init_attr` can be read.
#[inline]
pub unsafe fn ibv_alloc_td(context: *mut ibv_context, init_attr: *mut ibv_td_init_attr) -> *mut ibv_td {
    // SAFETY: by contract the context is live; its operation receives this function's arguments.
    unsafe {
        match extended_op!(context, alloc_td) {
            Some(alloc) => alloc(context, init_attr),
            None => unsupported(),
        }
    }
}

/// Destroys a thread domain. Returns zero or an errno value. See `ibv_dealloc_td(3)`.
///
/// # Safety
///
/// `td` is live, and is not used afterwards if this succeeds.
#[inline]
pub unsafe fn ibv_dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: by contract the domain is live, and with it its context; the operation receives this function's
    // arguments.
    unsafe {
        match extended_op!((*td).context, dealloc_td) {
            Some(dealloc) => dealloc(td),
            None => EOPNOTSUPP,
        }
    }
}

/// Creates a protection domain that adds a thread domain or an allocator to another one. Returns null and sets errno on
/// failure. See `ibv_alloc_parent_domain(3)`.
///
/// # Safety
///
/// `context` is live, `attr` can be read, and the domains that it names outlive the new one.
#[inline]
pub unsafe fn ibv_alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: by contract the context is live; its operation receives this function's arguments.
    unsafe {
        match extended_op!(context, alloc_parent_domain) {
            Some(alloc) => alloc(context, attr),
            None => unsupported(),
        }
    }
}
