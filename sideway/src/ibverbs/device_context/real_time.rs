//! `ibv_query_rt_values_ex`: what a device says at this moment.

use libc::timespec;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_values_ex, ibv_values_mask};

use super::DeviceContext;
use crate::error::VerbError;
use crate::ffi::check_errno;

bitflags::bitflags! {
    /// `enum ibv_values_mask` — which values to ask for, and which were given.
    #[doc(alias = "ibv_values_mask")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ValuesMask: u32 {
        /// The clock that timestamps of completions are taken from.
        const RawClock = ibv_values_mask::IBV_VALUES_MASK_RAW_CLOCK.0;
        // Bits that this version has no name for pass through.
        const _ = !0;
    }
}

/// The clock of the device, as `struct timespec`.
///
/// Drivers put a count of device cycles into it, not a time: [`DeviceAttr::device_clock`](super::DeviceAttr::device_clock)
/// has the frequency.
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

    /// `tv_nsec`, which holds device cycles and may exceed a second's worth of nanoseconds.
    pub fn nanoseconds(&self) -> i64 {
        self.nanoseconds
    }

    /// The clock in device cycles: all 64 bits of `tv_nsec`, to be compared with timestamps of completions;
    /// [`DeviceClock`](super::DeviceClock) makes nanoseconds of what lies between.
    pub fn cycles(&self) -> u64 {
        self.nanoseconds as u64
    }
}

/// `struct ibv_values_ex` — values of a device at the moment when it was asked.
#[doc(alias = "ibv_values_ex")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealTimeValues {
    mask: ValuesMask,
    raw_clock: RawClock,
}

impl RealTimeValues {
    /// Which values the device gave.
    pub fn comp_mask(&self) -> ValuesMask {
        self.mask
    }

    /// The clock, where the device gave it.
    pub fn raw_clock(&self) -> Option<RawClock> {
        self.mask.contains(ValuesMask::RawClock).then_some(self.raw_clock)
    }
}

impl DeviceContext {
    /// `ibv_query_rt_values_ex(context, values)` — asks for values of this moment, the clock of the device for one.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` where the driver does not know the verb or a value that was asked for.
    ///
    /// # References
    ///
    /// [ibv_query_rt_values_ex(3)](https://man7.org/linux/man-pages/man3/ibv_query_rt_values_ex.3.html)
    #[doc(alias = "ibv_query_rt_values_ex")]
    pub fn query_rt_values_ex(&self, mask: ValuesMask) -> Result<RealTimeValues, VerbError> {
        let mut values = ibv_values_ex { comp_mask: mask.bits(), raw_clock: timespec { tv_sec: 0, tv_nsec: 0 } };
        // SAFETY: the context is open as long as `self`, and `values` may be read and written.
        let ret = unsafe { sys::ibv_query_rt_values_ex(self.raw(), &mut values) };
        check_errno("ibv_query_rt_values_ex", ret)?;
        let mask = ValuesMask::from_bits_retain(values.comp_mask);
        let raw_clock = RawClock { seconds: values.raw_clock.tv_sec, nanoseconds: values.raw_clock.tv_nsec };
        Ok(RealTimeValues { mask, raw_clock })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_there_only_if_it_was_given_and_keeps_all_bits() {
        let raw_clock = RawClock { seconds: 0, nanoseconds: -1 };
        assert_eq!(raw_clock.cycles(), u64::MAX);
        let values = |mask| RealTimeValues { mask, raw_clock };
        assert_eq!(values(ValuesMask::empty()).raw_clock(), None);
        assert_eq!(values(ValuesMask::from_bits_retain(0x81)).raw_clock(), Some(raw_clock));
    }
}
