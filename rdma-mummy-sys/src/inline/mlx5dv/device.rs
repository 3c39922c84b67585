//! The device's clock and ports.

use core::ffi::c_int;

use super::library;
use crate::bindings::mlx5dv::*;
use crate::bindings::verbs::ibv_context;

/// Converts a timestamp in device cycles to nanoseconds of the kernel's clock. The timestamp must be within half a
/// counter period of the time when `clock_info` was read. See `mlx5dv_ts_to_ns(3)`.
///
/// # Safety
///
/// `clock_info` can be read.
#[inline]
#[must_use]
pub unsafe fn mlx5dv_ts_to_ns(clock_info: *mut mlx5dv_clock_info, device_timestamp: u64) -> u64 {
    // SAFETY: by contract the structure can be read.
    let clock = unsafe { *clock_info };
    let mult = u64::from(clock.mult);
    let after = device_timestamp.wrapping_sub(clock.last_cycles) & clock.mask;
    if after > clock.mask / 2 {
        let before = clock.last_cycles.wrapping_sub(device_timestamp) & clock.mask;
        let scaled = before.wrapping_mul(mult).wrapping_sub(clock.frac);
        clock.nsec.wrapping_sub(scaled.wrapping_shr(clock.shift))
    } else {
        let scaled = after.wrapping_mul(mult).wrapping_add(clock.frac);
        clock.nsec.wrapping_add(scaled.wrapping_shr(clock.shift))
    }
}

/// Reads mlx5-specific attributes of a port. Returns zero or an errno value. See `mlx5dv_query_port(3)`.
///
/// # Safety
///
/// `context` is live and `info` can be read and written.
#[inline]
pub unsafe fn mlx5dv_query_port(context: *mut ibv_context, port_num: u32, info: *mut mlx5_ib_uapi_query_port) -> c_int {
    // SAFETY: by contract the context is live and `info` writable; the library receives its size.
    unsafe { library::_mlx5dv_query_port(context, port_num, info, size_of::<mlx5_ib_uapi_query_port>()) }
}
