//! When something was, as one number.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Ticks of a clock that only goes forward: of the processor's counter where the kernel has its own time from it, as perftest does, or else
/// nanoseconds.
///
/// An `Instant` has seconds and nanoseconds, whose difference takes dozens of instructions: as many as a latency loop has for all else. To ask
/// for them takes more than twice as long as to read the counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tsc(u64);

/// Whether stamps are of the counter: not known yet, yes, or no.
static SOURCE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const COUNTER: u8 = 1;
const KERNEL: u8 = 2;

/// The same, decided once for all threads.
static IS_COUNTER: OnceLock<bool> = OnceLock::new();

/// The counter at one moment, and when that was, from which it is known how long a tick is.
static ANCHOR: Mutex<Option<(u64, Instant)>> = Mutex::new(None);

/// After so long the length of a tick is known to a few millionths: either of the two moments is known to some 50 ns.
const ENOUGH: Duration = Duration::from_millis(20);

impl Tsc {
    /// Now.
    #[inline]
    pub(crate) fn now() -> Self {
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
        // Since the machine has started: positive, and 2^64 nanoseconds are 584 years.
        Self(now.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec.cast_unsigned()))
    }

    /// So much later; as late as can be where that is beyond it.
    pub(crate) fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(Scale::now().ticks(time)))
    }

    /// So much earlier.
    #[cfg(test)]
    pub(crate) fn before(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(Scale::now().ticks(time)))
    }

    /// Ticks since an earlier one.
    #[inline]
    pub(super) fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// How long a tick is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    /// In nanoseconds.
    tick: f64,
}

impl Default for Scale {
    /// Of ticks that are nanoseconds.
    fn default() -> Self {
        Self { tick: 1.0 }
    }
}

impl Scale {
    /// From now on it is found out. What was before, while the machine slept perhaps, is none of it.
    pub(crate) fn begin() {
        *ANCHOR.lock().unwrap_or_else(PoisonError::into_inner) = Some(both());
    }

    /// As it is known by now, which is better the longer ago it has begun.
    pub(crate) fn now() -> Self {
        // Sees to it that the source is known.
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

    /// Nanoseconds of a tick.
    pub(crate) fn tick(self) -> f64 {
        self.tick
    }

    /// So many ticks in seconds.
    pub(super) fn seconds(self, ticks: u64) -> f64 {
        ticks as f64 * self.tick / 1e9
    }

    /// A time in ticks.
    pub(super) fn ticks(self, time: Duration) -> u64 {
        (time.as_nanos() as f64 / self.tick).round() as u64
    }
}

/// The processor's counter, which all cores have in common where [`is_counter_good`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: every processor of this architecture has the instruction, and Linux allows it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    0
}

/// The counter and the kernel's time at one moment: of several looks the one in which least has passed between them, since a thread may have to
/// wait for a processor there.
fn both() -> (u64, Instant) {
    let look = || {
        let (before, now) = (counter(), Instant::now());
        (counter().saturating_sub(before), before, now)
    };
    let best = (0..8).map(|_| look()).min_by_key(|(passed, ..)| *passed);
    best.map_or_else(|| (counter(), Instant::now()), |(_, counter, now)| (counter, now))
}

/// Whether the kernel trusts the counter with its own time: it goes at one rate then, also of a core that sleeps, and alike on all.
#[cold]
fn is_counter_good() -> bool {
    const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    cfg!(target_arch = "x86_64") && std::fs::read_to_string(CLOCK).is_ok_and(|name| name.trim() == "tsc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_go_as_instants_do() {
        let scale = Scale::now();
        let (begun, first) = (Instant::now(), Tsc::now());
        std::thread::sleep(Duration::from_millis(2));
        let (last, most) = (Tsc::now(), begun.elapsed());
        let passed = Duration::from_secs_f64(scale.seconds(last.since(first)));
        // The length of a tick is known to a thousandth at least.
        assert!(Duration::from_micros(1998) <= passed && passed <= most + most / 1000, "{passed:?} of {most:?}");
        assert_eq!(first.since(last), 0);
    }

    #[test]
    fn what_was_before_a_scale_began_does_not_count() {
        let begun = || ANCHOR.lock().unwrap_or_else(PoisonError::into_inner).map(|(_, begun)| begun);
        Scale::begin();
        let (first, now) = (begun(), Instant::now());
        Scale::begin();
        // Other tests may begin one too.
        assert!(first.is_some() && begun() > first && begun() > Some(now));
    }

    #[test]
    fn a_time_that_is_added_is_that_time() {
        let (now, scale) = (Tsc::now(), Scale::now());
        let more = scale.seconds(now.after(Duration::from_secs(1)).since(now));
        assert!((more - 1.0).abs() < 0.001, "{more} s");
        assert_eq!(now.after(Duration::MAX), Tsc(u64::MAX));
    }

    #[test]
    fn ticks_of_half_a_nanosecond_are_two_in_one() {
        let scale = Scale { tick: 0.5 };
        assert_eq!((scale.seconds(3_000_000_000), scale.ticks(Duration::from_micros(1))), (1.5, 2000));
        assert_eq!(scale.ticks(Duration::MAX), u64::MAX);
    }
}
