//! A device context: its extended table of operations, and the attributes of the device and its ports.

use core::ffi::c_int;
use core::mem::offset_of;
use core::ptr::null_mut;

use libc::{EINVAL, ENOSYS, EOPNOTSUPP};

use super::library;
use crate::bindings::verbs::*;

/// The value of `ibv_context::abi_compat` if the context is the tail of a [`verbs_context`].
const EXTENDED: usize = usize::MAX;

/// Returns the extended table that ends with `context`, or null if there is none.
///
/// # Safety
///
/// `context` is a live context.
#[inline]
#[must_use]
pub unsafe fn verbs_get_ctx(context: *mut ibv_context) -> *mut verbs_context {
    // SAFETY: by contract the context is live.
    if unsafe { (*context).abi_compat }.addr() != EXTENDED {
        return null_mut();
    }
    context.wrapping_byte_sub(offset_of!(verbs_context, context)).cast()
}

/// Reads current values of the device, such as its clock, selected by `values.comp_mask`. Returns zero or an errno
/// value. See `ibv_query_rt_values_ex(3)`.
///
/// # Safety
///
/// `context` is live and `values` can be read and written.
#[inline]
pub unsafe fn ibv_query_rt_values_ex(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int {
    // SAFETY: by contract the context is live; its operation receives this function's arguments.
    unsafe {
        match extended_op!(context, query_rt_values) {
            Some(query) => query(context, values),
            None => EOPNOTSUPP,
        }
    }
}

/// Reads the capabilities of the device. Returns zero or an errno value. Without the provider's extended query, returns
/// the plain attributes followed by zeros, or `EINVAL` if `input` selects anything. See `ibv_query_device_ex(3)`.
///
/// # Safety
///
/// `context` is live, `input` is null or can be read, and `attr` can be written.
#[inline]
pub unsafe fn ibv_query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
) -> c_int {
    // SAFETY: by contract the context is live, `input` is null or readable and `attr` writable. The provider receives
    // its size, and a structure of plain integers may be all zeros.
    unsafe {
        if !input.is_null() && (*input).comp_mask != 0 {
            return EINVAL;
        }
        if let Some(query) = extended_op!(context, query_device_ex) {
            let code = query(context, input, attr, size_of::<ibv_device_attr_ex>());
            if code != EOPNOTSUPP && code != ENOSYS {
                return code;
            }
        }
        attr.write_bytes(0, 1);
        library::ibv_query_device(context, &raw mut (*attr).orig_attr)
    }
}

/// Reads the attributes of port `port_num`, counted from one. Returns zero or an errno value. Without the provider's
/// own operation, the library writes the attributes of its first version, and the others are zero. See
/// `ibv_query_port(3)`.
///
/// # Safety
///
/// `context` is live and `port_attr` can be written.
#[inline]
pub unsafe fn ___ibv_query_port(context: *mut ibv_context, port_num: u8, port_attr: *mut ibv_port_attr) -> c_int {
    // SAFETY: by contract the context is live and `port_attr` writable. The provider receives its size, the library
    // writes only the first part of it, and a structure of plain integers may be all zeros.
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

/// Reads the attributes of port `port_num`, counted from one. Returns zero or an errno value. See `ibv_query_port(3)`.
///
/// # Safety
///
/// `context` is live and `port_attr` can be written.
#[inline]
pub unsafe fn ibv_query_port(context: *mut ibv_context, port_num: u8, port_attr: *mut ibv_port_attr) -> c_int {
    // SAFETY: the caller upholds the same contract.
    unsafe { ___ibv_query_port(context, port_num, port_attr) }
}
