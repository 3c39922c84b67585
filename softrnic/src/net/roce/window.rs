//! How many packets may be in flight, and when they are sent again.
//!
//! All connections of the process to one host share a window, because they also share the receive buffers there: a
//! thousand connections with a window of their own would overrun them. If the window is full, connections wait, and each
//! sends a burst in its turn.
//!
//! The window grows by what is acknowledged until the first loss, and then by one packet for each connection in a round
//! trip. A loss shrinks the part of its connection by a fourth, at most once in a round trip, because packets of a lossy
//! network are also lost without congestion. A congestion notification of the peer shrinks it in the same way.
//!
//! If a connection gets no acknowledgement in time, it sends one packet until it gets one. This packet is outside of the
//! window: its peer may be gone, and other connections must not wait for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::sys::unpoisoned;

/// The window at the beginning, in bytes. The receive buffer of a socket has space for it without any configuration.
const INITIAL: f64 = (128 << 10) as f64;
/// The smallest window, in packets. If other connections wait, each adds as many, up to the window at the beginning.
const MIN: f64 = 4.0;
/// The maximum number of bytes in flight of a connection, and of all connections to a host.
const MAX_OWN: u32 = 1 << 20;
const MAX: f64 = (4 << 20) as f64;
/// The window grows and shrinks as those of at most this many connections. Those of more would hardly shrink if a few bursts
/// overrun a buffer.
const MAX_FLOWS: usize = 8;
/// What a connection sends in its turn, in bytes.
const BURST: u32 = 64 << 10;
/// The part of its packets in flight by which a connection shrinks the window.
const SHRINK: f64 = 0.25;
/// The limits of the time after which packets without an acknowledgement are sent again, and its first value.
const MIN_TIMEOUT: Duration = Duration::from_millis(4);
const MAX_TIMEOUT: Duration = Duration::from_secs(2);
const FIRST_TIMEOUT: Duration = Duration::from_millis(100);
/// Congestion notifications within this time are one. Receivers send at most one in this time.
const NOTIFICATIONS: Duration = Duration::from_micros(50);

/// The window of all connections to a host.
#[derive(Debug)]
pub(super) struct Window {
    /// The size in bytes.
    size: f64,
    /// The window grows fast below this size.
    threshold: f64,
    /// The bytes in flight, of whole packets.
    in_flight: u64,
    /// The QP numbers of the connections that wait for their turns.
    waiting: VecDeque<u32>,
    /// The smoothed round-trip time and its variation, once measured (RFC 6298).
    round_trip: Option<(Duration, Duration)>,
    /// The number of packets that were acknowledged.
    acknowledged: u64,
}

impl Window {
    pub(super) fn new() -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            size: INITIAL,
            threshold: MAX,
            in_flight: 0,
            waiting: VecDeque::new(),
            round_trip: None,
            acknowledged: 0,
        }))
    }

    /// Returns the bytes in flight.
    #[cfg(test)]
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    fn free(&self) -> f64 {
        self.size - self.in_flight as f64
    }

    /// Returns for how many connections the window grows and shrinks.
    fn flows(&self) -> f64 {
        (1 + self.waiting.len()).min(MAX_FLOWS) as f64
    }

    /// Whether the window has space for a burst.
    fn has_space(&self) -> bool {
        self.free() >= (self.size / 4.0).min(BURST.into())
    }

    /// Returns the connection whose turn has come. It must send, even if it has nothing to send any more.
    pub(super) fn next_turn(&mut self) -> Option<u32> {
        if self.has_space() { self.waiting.pop_front() } else { None }
    }
}

/// Whether a connection waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    None,
    Waits,
    Has,
}

/// The part of a window that a connection uses.
#[derive(Debug)]
pub(super) struct Share {
    window: Arc<Mutex<Window>>,
    /// The number of the QP.
    number: u32,
    mtu: u32,
    turn: Turn,
    /// The bytes of this connection in [`Window::in_flight`].
    counted: u64,
    /// The number of packets that were acknowledged since the window was last updated.
    acknowledged: i32,
    /// Whether no acknowledgement has arrived since the time-out has expired, and by how much it has shrunk the window.
    is_silent: bool,
    shrunk: f64,
    /// How often the time-out has expired in succession. If the round trip is longer than the time-out, it can be
    /// measured only after a longer time-out (Karn's algorithm).
    expired: u32,
    /// Whether the QP sends nothing any more.
    is_ended: bool,
    last_notification: Option<Instant>,
    /// The window when it was last updated: its size, what a read may ask for, and the times.
    packets: i32,
    burst: i32,
    timeout: Duration,
    round_trip: Duration,
}

impl Share {
    pub(super) fn new(window: &Arc<Mutex<Window>>, number: u32, mtu: u32) -> Self {
        let mut share = Self {
            window: Arc::clone(window),
            number,
            mtu: mtu.max(1),
            turn: Turn::None,
            counted: 0,
            acknowledged: 0,
            is_silent: false,
            shrunk: 0.0,
            expired: 0,
            is_ended: false,
            last_notification: None,
            packets: 0,
            burst: i32::MAX,
            timeout: FIRST_TIMEOUT,
            round_trip: Duration::ZERO,
        };
        drop(share.updated(window, 0));
        share
    }

    /// Returns a share of a window that nothing else uses.
    #[cfg(test)]
    pub(super) fn alone(mtu: u32) -> Self {
        Self::new(&Window::new(), 1, mtu)
    }

    /// The window in packets, of which a connection can use all if no other one sends.
    pub(super) fn packets(&self) -> i32 {
        self.packets
    }

    /// The maximum number of packets for which a read may ask at once.
    pub(super) fn burst(&self) -> i32 {
        self.burst.min(self.packets)
    }

    /// Returns how many packets the connection may send now. If the window is full, it waits for its turn.
    pub(super) fn space(&mut self, in_flight: i32) -> i32 {
        let own = if self.is_silent { 1 } else { (MAX_OWN / self.mtu) as i32 } - in_flight;
        let shared = Arc::clone(&self.window);
        let mut window = self.updated(&shared, in_flight);
        if own <= 0 || self.is_silent || self.is_ended {
            return own;
        }
        let is_alone = window.waiting.iter().all(|waiting| *waiting == self.number);
        // The window may be smaller than a packet of this connection.
        let free = ((window.free() / f64::from(self.mtu)) as i32).max(i32::from(self.turn == Turn::Has));
        if free <= 0 || !is_alone && self.turn != Turn::Has {
            if self.turn != Turn::Waits {
                window.waiting.push_back(self.number);
            }
            self.turn = Turn::Waits;
            return 0;
        }
        if is_alone {
            window.waiting.clear();
        }
        self.turn = Turn::None;
        self.burst = if is_alone { i32::MAX } else { (BURST / self.mtu).max(1) as i32 };
        own.min(free).min(self.burst)
    }

    /// The connection may send a burst, although others wait.
    pub(super) fn begin_turn(&mut self) {
        self.turn = Turn::Has;
    }

    /// Returns how many packets of all connections were acknowledged, if this one waits for its turn.
    pub(super) fn progress_of_others(&self) -> u64 {
        if self.turn == Turn::Waits { unpoisoned(self.window.lock()).acknowledged } else { 0 }
    }

    /// Updates the window after packets were sent or acknowledged.
    pub(super) fn update(&mut self, in_flight: i32) {
        if self.acknowledged > 0 || self.counts(in_flight) != self.counted {
            let shared = Arc::clone(&self.window);
            drop(self.updated(&shared, in_flight));
        }
    }

    /// Returns how many bytes of this connection are in the window.
    fn counts(&self, in_flight: i32) -> u64 {
        let is_counted = !self.is_silent && !self.is_ended;
        if is_counted { in_flight.max(0) as u64 * u64::from(self.mtu) } else { 0 }
    }

    /// Updates the window and what is known of it.
    fn updated<'w>(&mut self, window: &'w Mutex<Window>, in_flight: i32) -> MutexGuard<'w, Window> {
        let mut window = unpoisoned(window.lock());
        let mtu = f64::from(self.mtu);
        // If the window does not limit the senders, it shows nothing about the network, and does not grow.
        let is_full = window.in_flight as f64 + mtu >= window.size / 2.0;
        let max = if window.waiting.is_empty() { MAX_OWN.into() } else { MAX };
        if self.acknowledged > 0 && is_full && window.size < max {
            let acknowledged = f64::from(self.acknowledged) * mtu;
            let is_fast = window.size < window.threshold;
            window.size += if is_fast { acknowledged } else { acknowledged / window.size * mtu * window.flows() };
            window.size = window.size.min(max);
        }
        window.acknowledged += self.acknowledged as u64;
        self.acknowledged = 0;
        let counted = self.counts(in_flight);
        window.in_flight = window.in_flight + counted - self.counted;
        self.counted = counted;
        self.packets = (window.size.min(MAX_OWN.into()) / mtu) as i32;
        self.round_trip = window.round_trip.map_or(Duration::ZERO, |(mean, _)| mean);
        let time = window.round_trip.map_or(FIRST_TIMEOUT, |(mean, variation)| mean + variation * 4);
        self.timeout = time.max(MIN_TIMEOUT);
        window
    }

    /// Records that packets were acknowledged. `is_all` is set if no other packets were sent: if the time-out had expired,
    /// it was too short, and nothing was lost.
    pub(super) fn acknowledged(&mut self, packets: i32, is_all: bool) {
        match (std::mem::take(&mut self.is_silent), is_all) {
            (true, true) => {
                let mut window = unpoisoned(self.window.lock());
                window.size += self.shrunk;
                window.threshold = window.size.max(window.threshold);
            }
            (true, false) => self.expired = 0,
            (false, _) => {}
        }
        self.acknowledged += packets;
    }

    /// Records the time between a packet and its acknowledgement. The packet was sent once.
    pub(super) fn measured(&mut self, time: Duration) {
        self.expired = 0;
        let mut window = unpoisoned(self.window.lock());
        window.round_trip = Some(match window.round_trip {
            None => (time, time / 2),
            Some((mean, variation)) => ((mean * 7 + time) / 8, (variation * 3 + mean.abs_diff(time)) / 4),
        });
    }

    /// Records the first loss of a round trip. `in_flight` is the number of packets that were in flight.
    pub(super) fn lost(&mut self, in_flight: i32) {
        let mtu = f64::from(self.mtu);
        let mut window = unpoisoned(self.window.lock());
        let before = window.size;
        let own = (f64::from(in_flight.max(1)) * mtu).min(before / window.flows());
        let min = (MIN * mtu * (1 + window.waiting.len()) as f64).min(INITIAL);
        window.size = (before - SHRINK * own).max(min.min(before));
        window.threshold = window.size;
        self.shrunk = before - window.size;
    }

    /// Records that no acknowledgement has arrived in time.
    pub(super) fn expired(&mut self, in_flight: i32) {
        self.expired += 1;
        // If the peer is not there, the window shows nothing about the network.
        if !std::mem::replace(&mut self.is_silent, true) {
            self.lost(in_flight);
        }
    }

    /// Records a congestion notification.
    pub(super) fn notified(&mut self, in_flight: i32, now: Instant) {
        if self.last_notification.is_none_or(|last| now.saturating_duration_since(last) >= NOTIFICATIONS) {
            self.last_notification = Some(now);
            self.lost(in_flight);
        }
    }

    /// Records that the QP sends nothing any more.
    pub(super) fn end(&mut self) {
        self.is_ended = true;
        self.update(0);
    }

    /// The round-trip time, or zero before it is known.
    pub(super) fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// The time after which packets without an acknowledgement are sent again. It doubles each time it expires.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout.saturating_mul(1 << self.expired.min(16)).min(MAX_TIMEOUT)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Sends as many packets as possible, which are acknowledged after that.
    fn send(share: &mut Share) -> i32 {
        let sent = share.space(0);
        share.update(sent);
        share.acknowledged(sent, true);
        share.update(0);
        sent
    }

    #[test]
    fn window_grows_fast_until_a_loss_and_then_slowly() {
        let mut share = Share::alone(4096);
        assert_eq!((send(&mut share), share.packets()), (32, 64));
        share.update(4);
        share.acknowledged(4, true);
        share.update(0);
        assert_eq!(share.packets(), 64, "the sender did not use the window");
        share.lost(64);
        assert_eq!((send(&mut share), share.packets()), (48, 49));
        for _ in 0..100 {
            share.lost(64);
        }
        share.update(1);
        assert_eq!(share.packets(), 4);
        let mut share = Share::alone(4096);
        for _ in 0..20 {
            send(&mut share);
        }
        assert_eq!((share.packets(), send(&mut share)), (256, 256));
    }

    #[test]
    fn notifications_of_one_moment_are_one() {
        let (mut share, now) = (Share::alone(4096), Instant::now());
        for (late, expected) in [(0, 24), (1, 24), (2, 18)] {
            share.notified(32, now + NOTIFICATIONS * late / 2);
            share.update(1 + late as i32);
            assert_eq!(share.packets(), expected);
        }
    }

    #[test]
    fn timeout_follows_the_round_trip_and_doubles_until_it_is_measured() {
        let mut share = Share::alone(1024);
        assert_eq!(share.timeout(), FIRST_TIMEOUT);
        (0..100).for_each(|_| share.measured(20 * MS));
        share.update(1);
        let timeout = share.timeout();
        assert!(timeout >= 20 * MS && timeout < 22 * MS, "{timeout:?}");
        share.expired(1);
        share.expired(1);
        share.acknowledged(1, true);
        assert_eq!(share.timeout(), timeout * 4);
        share.measured(20 * MS);
        assert_eq!(share.timeout(), timeout);
        (0..200).for_each(|_| share.expired(1));
        assert_eq!(share.timeout(), MAX_TIMEOUT);
    }

    /// Otherwise each time-out of a slow peer would shrink the window of all connections.
    #[test]
    fn timeout_that_was_too_short_shrinks_nothing() {
        for (is_all, expected) in [(true, 32), (false, 24)] {
            let mut share = Share::alone(4096);
            share.update(32);
            share.expired(32);
            share.acknowledged(1, is_all);
            share.update(0);
            // One packet is too few to show that the window is full.
            assert_eq!(share.packets(), expected);
        }
    }

    #[test]
    fn connections_share_a_window_and_take_turns() {
        let window = Window::new();
        let [mut first, mut second, mut third] = [1, 2, 3].map(|number| Share::new(&window, number, 4096));
        assert_eq!(first.space(0), 32);
        first.update(32);
        assert_eq!((second.space(0), third.space(0)), (0, 0));
        let next = || window.lock().unwrap().next_turn();
        assert_eq!(next(), None, "the window is full");
        first.acknowledged(8, false);
        assert_eq!(first.space(24), 0, "others have waited longer");
        assert_eq!(next(), Some(2));
        second.begin_turn();
        let sent = second.space(0);
        assert_eq!(sent, 16, "those that were acknowledged, and by which the window has grown");
        second.update(sent);
        assert_eq!(next(), None);
        // A connection that has ended leaves its space to others, and one that gets no acknowledgement sends one packet.
        drop(first);
        assert_eq!(next(), Some(3));
        third.begin_turn();
        assert_eq!(third.space(0), (BURST / 4096) as i32);
        third.expired(16);
        assert_eq!((third.space(0), third.space(1)), (1, 0));
        assert_eq!(next(), Some(1), "the number is no longer used");
        assert_eq!(next(), None);
    }
}
