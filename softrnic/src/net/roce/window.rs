//! How many packets may be in flight, and when they are sent again.
//!
//! The window grows by one packet for each one that is acknowledged, until the first loss, and then by one packet in each
//! round trip. A loss shrinks it by a fourth, at most once in a round trip, because packets of a lossy network are also
//! lost without congestion. A congestion notification of the peer shrinks it in the same way.

use std::time::{Duration, Instant};

/// The window at the beginning, in packets. The receive buffer of a socket holds at least this many packets of 4 KiB.
const INITIAL: f64 = 32.0;
const MIN: f64 = 4.0;
/// The largest window in bytes.
const MAX_BYTES: u32 = 1 << 20;
const SHRINK: f64 = 0.75;
/// The limits of the time after which packets without an acknowledgement are sent again, and its first value.
const MIN_TIMEOUT: Duration = Duration::from_millis(4);
const MAX_TIMEOUT: Duration = Duration::from_secs(2);
const FIRST_TIMEOUT: Duration = Duration::from_millis(100);
/// Congestion notifications within this time are one. Receivers send at most one in this time.
const NOTIFICATIONS: Duration = Duration::from_micros(50);

#[derive(Debug)]
pub(super) struct Window {
    size: f64,
    max: f64,
    /// The window grows fast below this size.
    threshold: f64,
    /// The smoothed round-trip time and its variation, once measured (RFC 6298).
    round_trip: Option<(Duration, Duration)>,
    /// How often the time-out has expired in succession.
    expired: u32,
    last_notification: Option<Instant>,
}

impl Window {
    pub(super) fn new(mtu: u32) -> Self {
        let max = f64::from(MAX_BYTES / mtu.max(1));
        Self { size: INITIAL.min(max), max, threshold: max, round_trip: None, expired: 0, last_notification: None }
    }

    /// The window in packets.
    pub(super) fn packets(&self) -> i32 {
        self.size as i32
    }

    /// Records that packets were acknowledged. `is_full` is set if the window has limited the sender: if not, the window
    /// shows nothing about the network, and does not grow.
    pub(super) fn acknowledged(&mut self, packets: i32, is_full: bool) {
        self.expired = 0;
        if is_full {
            let packets = f64::from(packets);
            self.size += if self.size < self.threshold { packets } else { packets / self.size };
            self.size = self.size.min(self.max);
        }
    }

    /// Records the time between a packet and its acknowledgement. The packet was sent once.
    pub(super) fn measured(&mut self, time: Duration) {
        self.round_trip = Some(match self.round_trip {
            None => (time, time / 2),
            Some((mean, variation)) => ((mean * 7 + time) / 8, (variation * 3 + mean.abs_diff(time)) / 4),
        });
    }

    /// Records the first loss of a round trip.
    pub(super) fn lost(&mut self) {
        self.size = (self.size * SHRINK).max(MIN);
        self.threshold = self.size;
    }

    /// Records that no acknowledgement has arrived in time.
    pub(super) fn expired(&mut self) {
        self.expired += 1;
        // If the peer is not there, the window shows nothing about the network.
        if self.expired == 1 {
            self.lost();
        }
    }

    /// Records a congestion notification.
    pub(super) fn notified(&mut self, now: Instant) {
        if self.last_notification.is_none_or(|last| now.saturating_duration_since(last) >= NOTIFICATIONS) {
            self.last_notification = Some(now);
            self.lost();
        }
    }

    /// The round-trip time, or zero before it is known.
    pub(super) fn round_trip(&self) -> Duration {
        self.round_trip.map_or(Duration::ZERO, |(mean, _)| mean)
    }

    /// The time after which packets without an acknowledgement are sent again. It doubles each time it expires.
    pub(super) fn timeout(&self) -> Duration {
        let time = self.round_trip.map_or(FIRST_TIMEOUT, |(mean, variation)| mean + variation * 4).max(MIN_TIMEOUT);
        time.saturating_mul(1 << self.expired.min(16)).min(MAX_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn window_grows_fast_until_a_loss_and_then_slowly() {
        let mut window = Window::new(1024);
        window.acknowledged(32, true);
        assert_eq!(window.packets(), 64);
        window.acknowledged(64, false);
        assert_eq!(window.packets(), 64, "the sender did not use the window");
        window.lost();
        assert_eq!(window.packets(), 48);
        window.acknowledged(48, true);
        assert_eq!(window.packets(), 49);
        for _ in 0..100 {
            window.lost();
        }
        assert_eq!(window.packets(), 4);
        let mut window = Window::new(4096);
        for _ in 0..20 {
            window.acknowledged(window.packets(), true);
        }
        assert_eq!(window.packets(), 256);
    }

    #[test]
    fn notifications_of_one_moment_are_one() {
        let (mut window, now) = (Window::new(1024), Instant::now());
        window.notified(now);
        window.notified(now + NOTIFICATIONS / 2);
        assert_eq!(window.packets(), 24);
        window.notified(now + NOTIFICATIONS);
        assert_eq!(window.packets(), 18);
    }

    #[test]
    fn timeout_follows_the_round_trip_and_doubles() {
        let mut window = Window::new(1024);
        assert_eq!(window.timeout(), FIRST_TIMEOUT);
        for _ in 0..100 {
            window.measured(20 * MS);
        }
        let timeout = window.timeout();
        assert!(timeout >= 20 * MS && timeout < 22 * MS, "{timeout:?}");
        window.expired();
        window.expired();
        assert_eq!(window.timeout(), timeout * 4);
        window.acknowledged(1, false);
        assert_eq!(window.timeout(), timeout);
        for _ in 0..200 {
            window.measured(Duration::from_micros(1));
            window.expired();
        }
        assert_eq!(window.timeout(), MAX_TIMEOUT);
    }
}
