//! XRC domains, which let the processes of a host share the receiving side of a connection.

use core::ffi::c_int;

use super::{unsupported, verbs_get_ctx};
use crate::bindings::verbs::*;

/// Opens a domain, and makes it first if asked. Null, and errno, if that fails. See `ibv_open_xrcd(3)`.
///
/// # Safety
///
/// `context` is live and `xrcd_init_attr` can be read.
#[inline]
pub unsafe fn ibv_open_xrcd(context: *mut ibv_context, xrcd_init_attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd {
    // SAFETY: by contract the context is live; its operation gets what this function got.
    unsafe {
        match extended_op!(context, open_xrcd) {
            Some(open) => open(context, xrcd_init_attr),
            None => unsupported(),
        }
    }
}

/// Closes a domain: zero or an errno. See `ibv_close_xrcd(3)`.
///
/// # Safety
///
/// `xrcd` is live (so its provider has the operation), and is not used again if this succeeds.
#[inline]
pub unsafe fn ibv_close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: by contract the domain is live: its context has an extended table, which opened it and can close it.
    unsafe { ((*verbs_get_ctx((*xrcd).context)).close_xrcd.unwrap_unchecked())(xrcd) }
}
