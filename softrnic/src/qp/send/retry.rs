//! The times after which a requester retries.

use std::time::{Duration, Instant};

/// The time for each code of `min_rnr_timer`, in units of ten microseconds (InfiniBand specification, volume 1, table
/// 45).
const NOT_READY_TIMES: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024, 1_536, 2_048, 3_072,
    4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

/// The value of `rnr_retry` that selects unlimited retries.
pub(crate) const UNLIMITED: u8 = 7;

/// Returns the time for a code of `min_rnr_timer`. Only the low five bits of the code count.
pub(crate) fn not_ready_time(code: u8) -> Duration {
    Duration::from_micros(u64::from(NOT_READY_TIMES[usize::from(code & 31)]) * 10)
}

/// Returns the local ACK timeout, which is 4.096 us * 2^timeout. Only the low five bits of `timeout` count. If they are
/// zero, there is no limit, and the result is `None`.
pub(crate) fn silence_time(timeout: u8) -> Option<Duration> {
    match timeout & 31 {
        0 => None,
        exponent => Some(Duration::from_nanos(4_096 << exponent)),
    }
}

/// The event for which the oldest request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The request waits for nothing and can be sent.
    No,
    /// The request is a multicast datagram, and a carrier to its group is full.
    Space,
    /// The device is slow, and sends the request at this time.
    Departure(Instant),
    /// The peer has no receive posted. The request is retried at this time.
    NotReady(Instant),
    /// The peer does not respond. The request is retried at this time.
    Silence(Instant),
    /// The peer does not respond, and there is no time-out.
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
