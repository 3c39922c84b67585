//! How long a requester waits before it tries again.

use std::time::{Duration, Instant};

/// The times of the codes of `min_rnr_timer`, in units of ten microseconds (InfiniBand specification, volume 1, table 45).
const NOT_READY_TIMES: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024, 1_536, 2_048, 3_072,
    4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

/// Retries without end, of `rnr_retry`.
pub(crate) const FOR_EVER: u8 = 7;

/// The time of a code of `min_rnr_timer`, of which five bits count.
pub(crate) fn not_ready_time(code: u8) -> Duration {
    Duration::from_micros(u64::from(NOT_READY_TIMES[usize::from(code & 31)]) * 10)
}

/// The time of a `timeout`, of which five bits count: 4.096 us * 2^timeout, or none where it is zero: no limit.
pub(crate) fn silence_time(timeout: u8) -> Option<Duration> {
    match timeout & 31 {
        0 => None,
        exponent => Some(Duration::from_nanos(4_096 << exponent)),
    }
}

/// What the oldest request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing: it has not begun.
    No,
    /// A process of the group that it goes to has no room.
    Room,
    /// The peer has no receive: until then.
    NotReady(Instant),
    /// The peer does not answer: until then.
    Silence(Instant),
    /// The peer does not answer, and the time-out is without limit.
    SilenceForEver,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_times_of_the_specification() {
        assert_eq!(not_ready_time(0), Duration::from_micros(655_360));
        assert_eq!(not_ready_time(1), Duration::from_micros(10));
        assert_eq!(not_ready_time(12), Duration::from_micros(640));
        assert_eq!(not_ready_time(14), Duration::from_micros(1_280));
        assert_eq!(not_ready_time(31), Duration::from_micros(491_520));
        assert_eq!(not_ready_time(32 + 5), Duration::from_micros(60));
    }

    #[test]
    fn time_outs_double() {
        assert_eq!(silence_time(0), None);
        assert_eq!(silence_time(1), Some(Duration::from_nanos(8_192)));
        assert_eq!(silence_time(14), Some(Duration::from_nanos(67_108_864)));
        assert_eq!(silence_time(31), Some(Duration::from_nanos(4_096 << 31)));
    }
}
