//! Event channels.

use std::collections::VecDeque;
use std::ptr;

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::calls::{belongs, device_of, on_device, own_device};
use super::events::Pending;
use crate::recording::calls::Kind;
use crate::recording::failure::set_errno;
use crate::recording::objects::forever;
use crate::recording::semaphore;
use crate::recording::state::{Device, Inner};

/// A channel. Each event that waits is a token in the descriptor; both change together, under the lock.
pub(super) struct Channel {
    pub(super) fd: c_int,
    pub(super) events: VecDeque<Pending>,
    /// Whether it belongs to an identifier that was made without one.
    pub(super) own: bool,
}

impl Channel {
    pub(super) fn put(&mut self, pending: Pending) {
        self.events.push_back(pending);
        // SAFETY: the descriptor is the channel's own, which is open.
        unsafe { semaphore::put(self.fd, 1) };
    }

    pub(super) fn take(&mut self) -> Option<Pending> {
        let pending = self.events.pop_front()?;
        // SAFETY: as above; there is a token for each event.
        unsafe { semaphore::take(self.fd) };
        Some(pending)
    }

    /// Takes all events out that are such.
    pub(super) fn remove(&mut self, such: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        let (gone, stay): (Vec<_>, Vec<_>) = self.events.drain(..).partition(such);
        self.events = stay.into();
        for _ in &gone {
            // SAFETY: as above.
            unsafe { semaphore::take(self.fd) };
        }
        gone
    }
}

/// A new channel; one that an identifier owns is no object of the program's.
pub(super) fn make(device: &'static Device, inner: &mut Inner, own: bool) -> *mut ffi::rdma_event_channel {
    let without = inner.script.without.contains("descriptor");
    let fd = if without { -1 } else { semaphore::new() };
    let channel = forever::<ffi::rdma_event_channel>();
    // SAFETY: the channel is new.
    unsafe { (*channel).fd = fd };
    belongs(channel, device);
    inner.made(Kind::EventChannel, channel, &[]);
    if own {
        inner.hide(channel.addr());
    }
    inner.manager.channels.insert(channel.addr(), Channel { fd, events: VecDeque::new(), own });
    channel
}

/// A channel goes, with what waits in it.
pub(super) fn end(inner: &mut Inner, channel: usize) {
    inner.unhide(channel);
    if inner.destroy(Kind::EventChannel, channel).is_err() {
        return;
    }
    if let Some(channel) = inner.manager.channels.remove(&channel).filter(|channel| channel.fd >= 0) {
        // SAFETY: the descriptor is the channel's own.
        unsafe { libc::close(channel.fd) };
    }
}

pub(super) unsafe extern "C" fn create_event_channel() -> *mut ffi::rdma_event_channel {
    let made = own_device().and_then(|device| {
        on_device(device, "rdma_create_event_channel", &[], || Ok(make(device, &mut device.state.lock(), false)))
    });
    made.unwrap_or_else(|errno| {
        set_errno(errno);
        ptr::null_mut()
    })
}

pub(super) unsafe extern "C" fn destroy_event_channel(channel: *mut ffi::rdma_event_channel) {
    let Some(device) = device_of(channel) else { return };
    let mut inner = device.state.note("rdma_destroy_event_channel", &[("channel", channel.addr() as u64)]);
    if inner.manager.ids.values().any(|id| id.channel == channel.addr()) {
        inner.violation("an event channel was destroyed that identifiers were left on");
    }
    if inner.manager.channels.get(&channel.addr()).is_some_and(|channel| channel.own) {
        return inner.violation("an event channel was destroyed that belongs to an identifier");
    }
    end(&mut inner, channel.addr());
    drop(inner);
    // Who waits at it sees that it is gone.
    device.state.acknowledged.notify_all();
}
