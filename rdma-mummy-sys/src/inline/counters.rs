//! Counters of packets that match flow rules.

use core::ffi::c_int;

use libc::EOPNOTSUPP;

use super::unsupported;
use crate::bindings::verbs::*;

/// Creates a set of counters. Returns null and sets errno on failure. See `ibv_create_counters(3)`.
///
/// # Safety
///
/// `context` is live and `init_attr` can be read.
#[inline]
pub unsafe fn ibv_create_counters(
    context: *mut ibv_context,
    init_attr: *mut ibv_counters_init_attr,
) -> *mut ibv_counters {
    // SAFETY: by contract the context is live; its operation receives this function's arguments.
    unsafe {
        match extended_op!(context, create_counters) {
            Some(create) => create(context, init_attr),
            None => unsupported(),
        }
    }
}

/// Destroys a set of counters. Returns zero or an errno value. See `ibv_destroy_counters(3)`.
///
/// # Safety
///
/// `counters` is live, and is not used afterwards if this succeeds.
#[inline]
pub unsafe fn ibv_destroy_counters(counters: *mut ibv_counters) -> c_int {
    // SAFETY: by contract the counters are live, and with them their context; the operation receives this function's
    // arguments.
    unsafe {
        match extended_op!((*counters).context, destroy_counters) {
            Some(destroy) => destroy(counters),
            None => EOPNOTSUPP,
        }
    }
}

/// Attaches a counter to a rule; with a null rule, reserves it for the rule that will name the set. Returns zero or an
/// errno value. See `ibv_attach_counters_point_flow(3)`.
///
/// # Safety
///
/// `counters` is live, `attr` can be read, and `flow` is null or live.
#[inline]
pub unsafe fn ibv_attach_counters_point_flow(
    counters: *mut ibv_counters,
    attr: *mut ibv_counter_attach_attr,
    flow: *mut ibv_flow,
) -> c_int {
    // SAFETY: by contract the counters are live, and with them their context; the operation receives this function's
    // arguments.
    unsafe {
        match extended_op!((*counters).context, attach_counters_point_flow) {
            Some(attach) => attach(counters, attr, flow),
            None => EOPNOTSUPP,
        }
    }
}

/// Stores the values of `ncounters` counters. Returns zero or an errno value. See `ibv_read_counters(3)`.
///
/// # Safety
///
/// `counters` is live and `counters_value` can be written for `ncounters` values.
#[inline]
pub unsafe fn ibv_read_counters(
    counters: *mut ibv_counters,
    counters_value: *mut u64,
    ncounters: u32,
    flags: u32,
) -> c_int {
    // SAFETY: by contract the counters are live, and with them their context; the operation receives this function's
    // arguments.
    unsafe {
        match extended_op!((*counters).context, read_counters) {
            Some(read) => read(counters, counters_value, ncounters, flags),
            None => EOPNOTSUPP,
        }
    }
}
