//! The device's clock, which counts nanoseconds (`CLOCK_MONOTONIC_RAW`), and the wall clock.

/// Nanoseconds of the device's clock.
pub(crate) fn device() -> u64 {
    read(libc::CLOCK_MONOTONIC_RAW)
}

/// Nanoseconds since 1970.
pub(crate) fn wall() -> u64 {
    read(libc::CLOCK_REALTIME)
}

fn read(clock: libc::clockid_t) -> u64 {
    // Miri derives its time from the executed code and has one clock.
    let clock = if cfg!(miri) { libc::CLOCK_MONOTONIC } else { clock };
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable; both clocks exist since Linux 2.6.28.
    unsafe { libc::clock_gettime(clock, &mut time) };
    // The conversion is lossless, because the fields are not negative, and 64 bits can hold the nanoseconds of 584
    // years.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
