//! The condition of a device, which `control` changes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::sys::clock;
use crate::sys::errno::Errno;

/// The condition of a device. QPs read it only while it hinders them: see `QueuePair::condition_changed`.
#[derive(Debug)]
pub(crate) struct Condition {
    is_down: AtomicBool,
    is_removed: AtomicBool,
    /// The time of the device's clock until which its connections carry no bytes.
    cut_until: AtomicU64,
    /// Whether the next frame that a connection sends is damaged.
    corrupts: AtomicBool,
    /// The number of bytes of registered memory, and its limit.
    registered: AtomicU64,
    limit: AtomicU64,
    /// The delay of each message in nanoseconds.
    delay: AtomicU64,
    /// The bandwidth in bytes per second, or zero.
    rate: AtomicU64,
    /// The time until which earlier messages use the bandwidth.
    busy_until: AtomicU64,
    /// How often the delay or the bandwidth was set.
    speed_changes: AtomicU64,
}

/// Registered memory that counts against the limit of its device.
#[derive(Debug)]
pub(crate) struct Registered {
    condition: &'static Condition,
    length: u64,
}

impl Registered {
    /// Counts the new length of a region in place of its old one, which is returned.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the memory then exceeds the limit.
    pub(crate) fn change(&mut self, length: u64) -> Result<u64, Errno> {
        self.condition.count(self.length, length)?;
        Ok(std::mem::replace(&mut self.length, length))
    }

    /// Counts the length again that [`change`](Self::change) has returned, whatever the limit is.
    pub(crate) fn restore(&mut self, length: u64) {
        self.condition.registered.fetch_add(length.wrapping_sub(self.length), Ordering::SeqCst);
        self.length = length;
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.condition.registered.fetch_sub(self.length, Ordering::SeqCst);
    }
}

/// The condition of QPs without a device.
pub(crate) static HEALTHY: Condition = Condition::new();

impl Condition {
    pub(crate) const fn new() -> Self {
        Self {
            is_down: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
            cut_until: AtomicU64::new(0),
            corrupts: AtomicBool::new(false),
            registered: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
            delay: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            busy_until: AtomicU64::new(0),
            speed_changes: AtomicU64::new(0),
        }
    }

    /// Whether the QPs of the device must read the condition before they send or receive a message.
    pub(crate) fn hinders(&self) -> bool {
        self.is_down() || self.is_slow()
    }

    pub(crate) fn is_slow(&self) -> bool {
        self.delay.load(Ordering::SeqCst) != 0 || self.rate.load(Ordering::SeqCst) != 0
    }

    pub(crate) fn set_delay(&self, delay: Duration) {
        self.delay.store(delay.as_nanos().try_into().unwrap_or(u64::MAX), Ordering::SeqCst);
        self.speed_changed();
    }

    /// Sets the bandwidth in bytes per second, or zero for no limit.
    pub(crate) fn set_rate(&self, rate: u64) {
        self.rate.store(rate, Ordering::SeqCst);
        self.speed_changed();
    }

    fn speed_changed(&self) {
        self.busy_until.store(0, Ordering::SeqCst);
        self.speed_changes.fetch_add(1, Ordering::SeqCst);
    }

    /// How often the delay or the bandwidth was set: times that were reckoned before are no longer right.
    pub(crate) fn speed_changes(&self) -> u64 {
        self.speed_changes.load(Ordering::SeqCst)
    }

    /// Returns how long a message of this length must wait before it is sent, and uses the bandwidth for it.
    pub(crate) fn departure(&self, length: u64) -> Duration {
        let now = clock::device();
        let rate = self.rate.load(Ordering::SeqCst);
        let mut end = now;
        if rate != 0 {
            let time = u128::from(length) * 1_000_000_000 / u128::from(rate);
            let end_after = |busy: u64| busy.max(now).saturating_add(u64::try_from(time).unwrap_or(u64::MAX));
            let update = |busy| Some(end_after(busy));
            end = self.busy_until.fetch_update(Ordering::SeqCst, Ordering::SeqCst, update).map_or(now, end_after);
        }
        Duration::from_nanos((end - now).saturating_add(self.delay.load(Ordering::SeqCst)))
    }

    /// Sets the maximum number of bytes of registered memory.
    pub(crate) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::SeqCst);
    }

    /// Counts memory that is registered.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the memory exceeds the limit.
    pub(crate) fn register(&'static self, length: u64) -> Result<Registered, Errno> {
        self.count(0, length)?;
        Ok(Registered { condition: self, length })
    }

    /// Counts `new` bytes in place of `old` ones.
    fn count(&self, old: u64, new: u64) -> Result<(), Errno> {
        let limit = self.limit.load(Ordering::SeqCst);
        // Without a limit, a region may have any length, such as one of the whole address space.
        let change = |registered: u64| match (limit, registered.wrapping_sub(old)) {
            (u64::MAX, rest) => Some(rest.wrapping_add(new)),
            (_, rest) => rest.checked_add(new).filter(|sum| *sum <= limit || new <= old),
        };
        let changed = self.registered.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change);
        changed.map(|_| ()).map_err(|_| Errno::NO_MEMORY)
    }

    /// Whether the port is down, so that the device sends and receives nothing.
    pub(crate) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::SeqCst)
    }

    /// Sets the state of the port. Returns whether it has changed.
    pub(crate) fn set_down(&self, is_down: bool) -> bool {
        self.is_down.swap(is_down, Ordering::SeqCst) != is_down
    }

    /// Makes the connections of the device carry no bytes for a time. Zero ends this.
    pub(crate) fn cut(&self, time: Duration) {
        let time = time.as_nanos().try_into().unwrap_or(u64::MAX);
        let until = if time == 0 { 0 } else { clock::device().saturating_add(time) };
        self.cut_until.store(until, Ordering::SeqCst);
    }

    /// How long connections of the device carry no bytes: without an end while the port is down.
    pub(crate) fn cut_left(&self) -> Option<Duration> {
        if self.is_down() {
            return Some(Duration::MAX);
        }
        let until = self.cut_until.load(Ordering::SeqCst);
        let left = if until == 0 { 0 } else { until.saturating_sub(clock::device()) };
        (left > 0).then(|| Duration::from_nanos(left))
    }

    /// Makes the next frame that a connection of the device sends arrive with a wrong checksum.
    pub(crate) fn corrupt_next(&self) {
        self.corrupts.store(true, Ordering::SeqCst);
    }

    /// Whether the frame that is being sent is to be damaged. The next one is not.
    #[inline]
    pub(crate) fn corrupts(&self) -> bool {
        self.corrupts.load(Ordering::Relaxed) && self.corrupts.swap(false, Ordering::SeqCst)
    }

    /// Whether the device was removed. It does not come back: a new device takes its place.
    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::SeqCst)
    }

    /// Removes the device. Returns `false` if it was removed before.
    pub(crate) fn remove(&self) -> bool {
        !self.is_removed.swap(true, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_region_counts_only_its_new_length() {
        static CONDITION: Condition = Condition::new();
        CONDITION.set_limit(100);
        let mut region = CONDITION.register(60).unwrap();
        assert_eq!(region.change(101), Err(Errno::NO_MEMORY));
        assert_eq!(region.change(100), Ok(60));
        assert_eq!(CONDITION.register(1).err(), Some(Errno::NO_MEMORY));
        region.restore(60);
        let other = CONDITION.register(40).unwrap();
        assert_eq!(region.change(61), Err(Errno::NO_MEMORY));
        drop((region, other));
        assert_eq!(CONDITION.registered.load(Ordering::SeqCst), 0);
    }
}
