//! Retry times of a requester.

use std::time::{Duration, Instant};

/// Times of the codes of `min_rnr_timer`, in units of ten microseconds (InfiniBand specification, volume 1, table 45).
const NOT_READY_TIMES: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024, 1_536, 2_048, 3_072,
    4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

/// The value of `rnr_retry` for unlimited retries.
pub(crate) const UNLIMITED: u8 = 7;

/// The time of a code of `min_rnr_timer`; only its low five bits count.
pub(crate) fn not_ready_time(code: u8) -> Duration {
    Duration::from_micros(u64::from(NOT_READY_TIMES[usize::from(code & 31)]) * 10)
}

/// The local ACK timeout, 4.096 us * 2^timeout; only the low five bits count. `None` if zero: no limit.
pub(crate) fn silence_time(timeout: u8) -> Option<Duration> {
    match timeout & 31 {
        0 => None,
        exponent => Some(Duration::from_nanos(4_096 << exponent)),
    }
}

/// The event for which the oldest request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// No event: the request has not begun.
    No,
    /// A carrier to its multicast group is full.
    Space,
    /// The peer has no receive posted; the request is retried at this time.
    NotReady(Instant),
    /// The peer does not respond; the request is retried at this time.
    Silence(Instant),
    /// The peer does not respond, and the time-out is unlimited.
    SilenceForEver,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rnr_codes_match_the_specification() {
        assert_eq!(not_ready_time(0), Duration::from_micros(655_360));
        assert_eq!(not_ready_time(1), Duration::from_micros(10));
        assert_eq!(not_ready_time(12), Duration::from_micros(640));
        assert_eq!(not_ready_time(14), Duration::from_micros(1_280));
        assert_eq!(not_ready_time(31), Duration::from_micros(491_520));
        assert_eq!(not_ready_time(32 + 5), Duration::from_micros(60));
    }

    #[test]
    fn ack_timeouts_double() {
        assert_eq!(silence_time(0), None);
        assert_eq!(silence_time(1), Some(Duration::from_nanos(8_192)));
        assert_eq!(silence_time(14), Some(Duration::from_nanos(67_108_864)));
        assert_eq!(silence_time(31), Some(Duration::from_nanos(4_096 << 31)));
    }
}
