//! Time stamps that consist of one number.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A time stamp in ticks of a monotonic clock. The clock is the processor's time-stamp counter if the kernel uses that
/// counter as its clock source; perftest reads the same counter. Otherwise the ticks are nanoseconds of the kernel's
/// clock.
///
/// A type of its own is faster than `Instant`. The difference of two `Instant`s takes dozens of instructions, as many
/// as the rest of a latency loop, and reading an `Instant` takes more than twice as long as reading the counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tsc(u64);

/// Where time stamps come from: not determined yet, from the counter, or from the kernel.
static SOURCE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const COUNTER: u8 = 1;
const KERNEL: u8 = 2;

/// Whether time stamps come from the counter, which is determined once for all threads.
static IS_COUNTER: OnceLock<bool> = OnceLock::new();

/// The counter and the kernel's time at the same moment. The length of a tick is computed from this moment on.
static ANCHOR: Mutex<Option<(u64, Instant)>> = Mutex::new(None);

/// When this time has passed, the length of a tick is known with an error of a few millionths, because the error at
/// each end is about 50 ns.
const ENOUGH: Duration = Duration::from_millis(20);

impl Tsc {
    /// Returns the current time.
    #[inline]
    pub fn now() -> Self {
        if SOURCE.load(Ordering::Relaxed) == COUNTER { Self(counter()) } else { Self::of_kernel() }
    }

    #[inline(never)]
    fn of_kernel() -> Self {
        if SOURCE.load(Ordering::Relaxed) == UNKNOWN {
            let is_counter = *IS_COUNTER.get_or_init(is_counter_good);
            SOURCE.store(if is_counter { COUNTER } else { KERNEL }, Ordering::Relaxed);
            return Self::now();
        }
        let now = clock_gettime(ClockId::Monotonic);
        // The time since boot is positive, and 2^64 nanoseconds are 584 years, so the conversion is lossless.
        Self(now.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec.cast_unsigned()))
    }

    /// Returns the time stamp that is later by this duration. The result saturates.
    pub fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(Scale::now().ticks(time)))
    }

    /// Returns the time stamp that is earlier by this duration.
    #[cfg(test)]
    pub(crate) fn before(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(Scale::now().ticks(time)))
    }

    /// Returns the number of ticks since an earlier time stamp.
    #[inline]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The conversion between ticks and times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Number of nanoseconds per tick.
    tick: f64,
}

impl Default for Scale {
    /// Returns a scale with one nanosecond per tick.
    fn default() -> Self {
        Self { tick: 1.0 }
    }
}

impl Scale {
    /// Starts the calibration. Earlier time is not used for it, because the machine may have been suspended then.
    pub fn begin() {
        *ANCHOR.lock().unwrap_or_else(PoisonError::into_inner) = Some(both());
    }

    /// Returns the scale that the calibration has determined so far. The scale becomes more precise with time.
    pub fn now() -> Self {
        // This call determines the source if it is still unknown.
        Tsc::now();
        if SOURCE.load(Ordering::Relaxed) != COUNTER {
            return Self::default();
        }
        let (first, begun) = *ANCHOR.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(both);
        std::thread::sleep(ENOUGH.saturating_sub(begun.elapsed()));
        let (last, now) = both();
        let passed = now.duration_since(begun).as_nanos() as f64;
        Self { tick: passed / last.saturating_sub(first).max(1) as f64 }
    }

    /// Returns the number of nanoseconds per tick.
    pub fn tick(self) -> f64 {
        self.tick
    }

    /// Converts ticks to seconds.
    pub fn seconds(self, ticks: u64) -> f64 {
        ticks as f64 * self.tick / 1e9
    }

    /// Converts a duration to ticks.
    pub(super) fn ticks(self, time: Duration) -> u64 {
        (time.as_nanos() as f64 / self.tick).round() as u64
    }
}

/// Reads the processor's counter. All cores have the same counter if [`is_counter_good`] returns true.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux allows it in user space.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    0
}

/// Returns the counter and the kernel's time at the same moment. Because the thread may be preempted between the two
/// readings, takes several pairs of readings and returns the one with the shortest time between them.
fn both() -> (u64, Instant) {
    let look = || {
        let (before, now) = (counter(), Instant::now());
        (counter().saturating_sub(before), before, now)
    };
    let best = (0..8).map(|_| look()).min_by_key(|(passed, ..)| *passed);
    best.map_or_else(|| (counter(), Instant::now()), |(_, counter, now)| (counter, now))
}

/// Whether the kernel uses the counter as its clock source. A counter that the kernel uses has a constant rate, even
/// while a core sleeps, and is the same on all cores.
#[cold]
fn is_counter_good() -> bool {
    const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    cfg!(target_arch = "x86_64") && std::fs::read_to_string(CLOCK).is_ok_and(|name| name.trim() == "tsc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_agree_with_instants() {
        let scale = Scale::now();
        let (begun, first) = (Instant::now(), Tsc::now());
        std::thread::sleep(Duration::from_millis(2));
        let (last, most) = (Tsc::now(), begun.elapsed());
        let passed = Duration::from_secs_f64(scale.seconds(last.since(first)));
        // The error of the length of a tick is at most one thousandth.
        assert!(Duration::from_micros(1998) <= passed && passed <= most + most / 1000, "{passed:?} of {most:?}");
        assert_eq!(first.since(last), 0);
    }

    #[test]
    fn time_before_calibration_does_not_count() {
        let begun = || ANCHOR.lock().unwrap_or_else(PoisonError::into_inner).map(|(_, begun)| begun);
        Scale::begin();
        let (first, now) = (begun(), Instant::now());
        Scale::begin();
        // Other tests may start a calibration at the same time.
        assert!(first.is_some() && begun() > first && begun() > Some(now));
    }

    #[test]
    fn added_duration_converts_back() {
        let (now, scale) = (Tsc::now(), Scale::now());
        let more = scale.seconds(now.after(Duration::from_secs(1)).since(now));
        assert!((more - 1.0).abs() < 0.001, "{more} s");
        assert_eq!(now.after(Duration::MAX), Tsc(u64::MAX));
    }

    #[test]
    fn half_nanosecond_ticks_convert() {
        let scale = Scale { tick: 0.5 };
        assert_eq!((scale.seconds(3_000_000_000), scale.ticks(Duration::from_micros(1))), (1.5, 2000));
        assert_eq!(scale.ticks(Duration::MAX), u64::MAX);
    }
}
