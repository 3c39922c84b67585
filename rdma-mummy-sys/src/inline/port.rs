//! What a port says of itself.

use core::ffi::c_int;

use super::library;
use crate::bindings::verbs::*;

/// Reads the attributes of port `port_num`, counted from one: zero or an errno. Without the provider's own operation
/// the library writes the attributes that it knew first, and the others are zero. See `ibv_query_port(3)`.
///
/// # Safety
///
/// `context` is live and `port_attr` can be written.
#[inline]
pub unsafe fn ___ibv_query_port(context: *mut ibv_context, port_num: u8, port_attr: *mut ibv_port_attr) -> c_int {
    // SAFETY: by contract the context is live and `port_attr` writable: the provider is told its size, the library
    // writes no more than the first part of it, and a structure of plain integers may be all zeros.
    unsafe {
        match extended_op!(context, query_port) {
            Some(query) => query(context, port_num, port_attr, size_of::<ibv_port_attr>()),
            None => {
                port_attr.write_bytes(0, 1);
                library::ibv_query_port(context, port_num, port_attr.cast())
            }
        }
    }
}

/// Reads the attributes of port `port_num`, counted from one: zero or an errno. See `ibv_query_port(3)`.
///
/// # Safety
///
/// `context` is live and `port_attr` can be written.
#[inline]
pub unsafe fn ibv_query_port(context: *mut ibv_context, port_num: u8, port_attr: *mut ibv_port_attr) -> c_int {
    // SAFETY: the same contract.
    unsafe { ___ibv_query_port(context, port_num, port_attr) }
}
