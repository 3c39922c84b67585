//! The condition of a device, which `control` changes.

use std::sync::atomic::{AtomicBool, Ordering};

/// The condition of a device. QPs read it only while it hinders them: see `QueuePair::condition_changed`.
#[derive(Debug)]
pub(crate) struct Condition {
    is_down: AtomicBool,
    is_removed: AtomicBool,
}

/// The condition of QPs without a device.
pub(crate) static HEALTHY: Condition = Condition::new();

impl Condition {
    pub(crate) const fn new() -> Self {
        Self { is_down: AtomicBool::new(false), is_removed: AtomicBool::new(false) }
    }

    /// Whether the QPs of the device must read the condition before they send or receive a message.
    pub(crate) fn hinders(&self) -> bool {
        self.is_down()
    }

    /// Whether the port is down, so that the device sends and receives nothing.
    pub(crate) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::SeqCst)
    }

    /// Sets the state of the port. Returns whether it has changed.
    pub(crate) fn set_down(&self, is_down: bool) -> bool {
        self.is_down.swap(is_down, Ordering::SeqCst) != is_down
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
