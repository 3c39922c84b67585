//! The clock of a device, and the conversion of its cycles to nanoseconds.

use std::time::Duration;

use super::DeviceAttr;

/// The device clock that completion timestamps are read from. It converts cycles to nanoseconds.
///
/// The clock has a frequency and a limited number of bits, and wraps around. The zero point is unspecified, and the
/// clock drifts against the system's clocks. So only the time between two readings of the same device is meaningful. A
/// reading is a completion timestamp, or the current value from
/// [`query_rt_values_ex`](super::DeviceContext::query_rt_values_ex).
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let devices = sideway::ibverbs::device::DeviceList::new()?;
/// # let context = devices.get(0).ok_or("no device")?.open()?;
/// # let timestamp = 0;
/// use sideway::ibverbs::device_context::ValuesMask;
///
/// let clock = context.query_device()?.device_clock().ok_or("the device has no clock")?;
/// let now = context.query_rt_values_ex(ValuesMask::RawClock)?.raw_clock().ok_or("the device reports no clock")?;
/// // `timestamp` is the `completion_timestamp()` of a completion.
/// println!("it completed {:?} ago", clock.between(timestamp, now.cycles()));
/// # Ok(())
/// # }
/// ```
///
/// The mlx5 driver can also convert timestamps to wall clock time, with `mlx5dv_ts_to_ns` or in the field
/// [`CompletionTimestampWallclock`](crate::ibverbs::completion::CreateCompletionQueueWorkCompletionFlags::CompletionTimestampWallclock).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceClock {
    khz: u64,
    mask: u64,
}

impl DeviceAttr {
    /// `hca_core_clock`, `completion_timestamp_mask`: returns the clock of completion timestamps, or `None` if the
    /// device does not report the frequency of the clock.
    #[doc(alias = "hca_core_clock")]
    pub fn device_clock(&self) -> Option<DeviceClock> {
        let mask = self.completion_timestamp_mask().unwrap_or(u64::MAX);
        self.hca_core_clock().and_then(|khz| DeviceClock::new(khz, mask))
    }
}

impl DeviceClock {
    /// Creates a clock with a frequency of `khz` kHz, whose readings have the bits of `mask`. Returns `None` if either
    /// argument is 0.
    pub const fn new(khz: u64, mask: u64) -> Option<Self> {
        if khz == 0 || mask == 0 { None } else { Some(Self { khz, mask }) }
    }

    /// Returns the frequency, in kHz.
    pub const fn khz(self) -> u64 {
        self.khz
    }

    /// Returns the mask of a reading's valid bits.
    pub const fn mask(self) -> u64 {
        self.mask
    }

    /// Converts cycles to nanoseconds, rounded down. Returns `u64::MAX` if the result exceeds 64 bits (584 years).
    #[inline]
    pub const fn nanoseconds(self, cycles: u64) -> u64 {
        // At 1 kHz, one cycle takes 1,000,000 ns.
        let nanoseconds = cycles as u128 * 1_000_000 / self.khz as u128;
        if nanoseconds > u64::MAX as u128 { u64::MAX } else { nanoseconds as u64 }
    }

    /// Returns the number of cycles between an earlier and a later reading. The clock may have wrapped around once
    /// between them.
    #[inline]
    pub const fn cycles_between(self, earlier: u64, later: u64) -> u64 {
        later.wrapping_sub(earlier) & self.mask
    }

    /// Returns the time between an earlier and a later reading. The clock may have wrapped around once between them.
    #[inline]
    pub const fn between(self, earlier: u64, later: u64) -> Duration {
        Duration::from_nanos(self.nanoseconds(self.cycles_between(earlier, later)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nanoseconds_follow_from_frequency() {
        // At 156.25 MHz, one cycle takes 6.4 ns.
        let clock = DeviceClock::new(156_250, u64::MAX).unwrap();
        assert_eq!((clock.nanoseconds(5), clock.nanoseconds(1)), (32, 6));
        let clock = DeviceClock::new(1_000_000, u64::MAX).unwrap();
        assert_eq!(clock.nanoseconds(u64::MAX), u64::MAX);
        assert_eq!(DeviceClock::new(1, u64::MAX).unwrap().nanoseconds(u64::MAX), u64::MAX, "too long to count");
    }

    #[test]
    fn between_allows_one_wrap_around() {
        let clock = DeviceClock::new(1_000_000, (1 << 48) - 1).unwrap();
        assert_eq!(clock.between((1 << 48) - 10, 15), Duration::from_nanos(25));
        assert_eq!(clock.between(15, 15), Duration::ZERO);
    }

    #[test]
    fn zero_frequency_or_mask_is_none() {
        assert_eq!(DeviceClock::new(0, 1), None);
        assert_eq!(DeviceClock::new(1, 0), None);
    }

    proptest! {
        #[test]
        fn no_clock_value_panics(khz: u64, mask: u64, earlier: u64, later: u64) {
            if let Some(clock) = DeviceClock::new(khz, mask) {
                let cycles = clock.cycles_between(earlier, later);
                prop_assert_eq!(cycles & !mask, 0);
                prop_assert_eq!(clock.between(earlier, later).as_nanos(), u128::from(clock.nanoseconds(cycles)));
            }
        }
    }
}
