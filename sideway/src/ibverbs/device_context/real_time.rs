//! Querying the current values of a device with `ibv_query_rt_values_ex`.

use libc::timespec;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_values_ex, ibv_values_mask};

use super::DeviceContext;
use crate::error::VerbError;
use crate::ffi::check_errno;

bitflags::bitflags! {
    /// `enum ibv_values_mask` — the values that a query requests, or that the device returned.
    #[doc(alias = "ibv_values_mask")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ValuesMask: u32 {
        /// The clock of completion timestamps.
        const RawClock = ibv_values_mask::IBV_VALUES_MASK_RAW_CLOCK.0;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

/// The clock of the device, as `struct timespec`.
///
/// Drivers do not store a time in it, but a count of device cycles.
/// [`DeviceAttr::device_clock`](super::DeviceAttr::device_clock) returns the frequency of these cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawClock {
    seconds: i64,
    nanoseconds: i64,
}

impl RawClock {
    /// `tv_sec`, which drivers leave at 0.
    pub fn seconds(&self) -> i64 {
        self.seconds
    }

    /// `tv_nsec`, which contains device cycles and may exceed 999,999,999.
    pub fn nanoseconds(&self) -> i64 {
        self.nanoseconds
    }

    /// Returns the clock in device cycles, which are all 64 bits of `tv_nsec`. The result is comparable with completion
    /// timestamps. [`DeviceClock`](super::DeviceClock) converts differences of such values to nanoseconds.
    pub fn cycles(&self) -> u64 {
        self.nanoseconds as u64
    }
}

/// `struct ibv_values_ex` — values of a device at the time of the query.
#[doc(alias = "ibv_values_ex")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealTimeValues {
    mask: ValuesMask,
    raw_clock: RawClock,
}

impl RealTimeValues {
    /// Returns the mask of the values that the device returned.
    pub fn comp_mask(&self) -> ValuesMask {
        self.mask
    }

    /// Returns the clock, if the device returned it.
    pub fn raw_clock(&self) -> Option<RawClock> {
        self.mask.contains(ValuesMask::RawClock).then_some(self.raw_clock)
    }
}

impl DeviceContext {
    /// `ibv_query_rt_values_ex(context, values)` — queries current values, such as the device's clock.
    ///
    /// # Errors
    ///
    /// Returns `EOPNOTSUPP` if the driver does not support the verb or a requested value.
    ///
    /// # References
    ///
    /// [ibv_query_rt_values_ex(3)](https://man7.org/linux/man-pages/man3/ibv_query_rt_values_ex.3.html)
    #[doc(alias = "ibv_query_rt_values_ex")]
    pub fn query_rt_values_ex(&self, mask: ValuesMask) -> Result<RealTimeValues, VerbError> {
        let mut values = ibv_values_ex { comp_mask: mask.bits(), raw_clock: timespec { tv_sec: 0, tv_nsec: 0 } };
        // SAFETY: the context is open as long as `self` lives, and the call may read and write `values`.
        let ret = unsafe { sys::ibv_query_rt_values_ex(self.raw(), &mut values) };
        check_errno("ibv_query_rt_values_ex", ret)?;
        let mask = ValuesMask::from_bits_retain(values.comp_mask);
        let timespec { tv_sec, tv_nsec, .. } = values.raw_clock;
        #[cfg_attr(
            target_pointer_width = "64",
            expect(clippy::useless_conversion, reason = "on 32-bit targets, the fields have 32 bits")
        )]
        let raw_clock = RawClock { seconds: tv_sec.into(), nanoseconds: tv_nsec.into() };
        Ok(RealTimeValues { mask, raw_clock })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_clock_is_present_if_returned_and_keeps_all_bits() {
        let raw_clock = RawClock { seconds: 0, nanoseconds: -1 };
        assert_eq!(raw_clock.cycles(), u64::MAX);
        let values = |mask| RealTimeValues { mask, raw_clock };
        assert_eq!(values(ValuesMask::empty()).raw_clock(), None);
        assert_eq!(values(ValuesMask::from_bits_retain(0x81)).raw_clock(), Some(raw_clock));
    }
}
