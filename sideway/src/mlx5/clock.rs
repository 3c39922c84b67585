//! The device's clock against the wall's.

use std::mem;

use rdma_mummy_sys::mlx5dv::{self as sys, mlx5dv_clock_info};

use super::device::explain;
use crate::error::VerbError;
use crate::ffi::check_errno;
use crate::ibverbs::device_context::DeviceContext;

/// `struct mlx5dv_clock_info`: how cycles of the device's clock become nanoseconds, as of the moment when it was asked for.
#[doc(alias = "mlx5dv_clock_info")]
#[derive(Clone, Copy, Debug)]
pub struct ClockInfo {
    raw: mlx5dv_clock_info,
}

impl ClockInfo {
    /// `mlx5dv_ts_to_ns(clock_info, device_timestamp)` — the time stamp of a completion, in cycles of the device's clock, as
    /// nanoseconds of the wall clock. It may lie before or behind the moment when the information was asked for; the further
    /// off, the less exact, up to [`max_clock_info_update_nsec`](super::Mlx5DeviceAttr::max_clock_info_update_nsec).
    ///
    /// # References
    ///
    /// [mlx5dv_ts_to_ns(3)](https://man7.org/linux/man-pages/man3/mlx5dv_ts_to_ns.3.html)
    #[doc(alias = "mlx5dv_ts_to_ns")]
    #[inline]
    pub fn timestamp_to_ns(&self, device_timestamp: u64) -> u64 {
        // SAFETY: the function only reads the struct.
        unsafe { sys::mlx5dv_ts_to_ns((&raw const self.raw).cast_mut(), device_timestamp) }
    }
}

impl DeviceContext {
    /// `mlx5dv_get_clock_info(context, clock_info)` — asks how the device's clock stands against the wall's. The driver keeps
    /// that in memory: no device is asked, and asking often is cheap.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the device is not one of mlx5, or libmlx5 is not installed (the hint tells which), or the kernel does not
    ///   tell.
    /// - `EINVAL`: the kernel does not tell.
    ///
    /// # References
    ///
    /// [mlx5dv_get_clock_info(3)](https://man7.org/linux/man-pages/man3/mlx5dv_get_clock_info.3.html)
    #[doc(alias = "mlx5dv_get_clock_info")]
    pub fn mlx5_clock_info(&self) -> Result<ClockInfo, VerbError> {
        // SAFETY: all-zero is legal: the struct has integers alone.
        let mut raw: mlx5dv_clock_info = unsafe { mem::zeroed() };
        // SAFETY: the context is open as long as `self`, and the struct can be written.
        let ret = unsafe { sys::mlx5dv_get_clock_info(self.raw(), &mut raw) };
        check_errno("mlx5dv_get_clock_info", ret).map_err(|error| explain(error, self))?;
        Ok(ClockInfo { raw })
    }
}
