//! Moving an identifier to another channel.

use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLockReadGuard};

use rdma_mummy_sys as sys;

use super::Identifier;
use crate::error::VerbError;
use crate::ffi::{clear_errno, errno_of};
use crate::rdmacm::communication_manager::EventChannel;

impl Identifier {
    /// `rdma_migrate_id(id, channel)` — moves the identifier to `channel`. New events then arrive on `channel`, and so
    /// do the events that were waiting on the old channel. Nothing happens if the identifier is already on `channel`.
    ///
    /// The identifiers of connect requests are on the channel of their listener. Each of them can be moved to a
    /// separate channel.
    ///
    /// Before moving a *listener*, take all waiting connect requests. Otherwise the requests are lost, and the peers
    /// wait until the listener is dropped. (This was seen with Linux 6.1. The kernel keeps the requests on the old
    /// channel, and the library does not find them.) The old channel stays open as long as the listener lives.
    ///
    /// C's null channel, which makes calls on the identifier synchronous, is unsupported.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the channel and the identifier belong to different providers.
    /// - Otherwise the errno of the library.
    ///
    /// After an error, the identifier is still on its old channel.
    ///
    /// # References
    ///
    /// [rdma_migrate_id(3)](https://man7.org/linux/man-pages/man3/rdma_migrate_id.3.html)
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate(self: &Arc<Self>, channel: &Arc<EventChannel>) -> Result<(), VerbError> {
        let mut home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&home, channel) {
            return Ok(());
        }
        {
            // While both channels are locked, no event is taken from them. This has two effects. The library waits in
            // this call until all events of the identifier are acknowledged, and because no new event is taken, it does
            // not wait forever. And the thread that takes the first event on the new channel finds the identifier
            // there.
            let _calls = lock_both(&home, channel);
            // If the identifier stops the events of its old channel, it stops those of the new channel from now on.
            let holds = self.holds.load(Ordering::Relaxed);
            if holds {
                channel.hold();
            }
            channel.identifiers().insert(self.raw, self);
            clear_errno();
            // SAFETY: the identifier and both channels are live, and the identifier is locked.
            let ret = unsafe { sys::rdma_migrate_id(self.raw.as_ptr(), channel.raw()) };
            if ret != 0 {
                let errno = errno_of(ret);
                channel.identifiers().move_out(self.raw, Arc::as_ptr(self));
                if holds {
                    channel.release();
                }
                let error = VerbError::new("rdma_migrate_id", errno);
                return Err(match errno.raw() {
                    libc::EINVAL => error.with_hint(
                        "the channel may belong to another provider than the identifier; use a \
                            channel of the same",
                    ),
                    _ => error,
                });
            }
            home.identifiers().move_out(self.raw, Arc::as_ptr(self));
            if holds {
                home.release();
            }
        }
        let before = mem::replace(&mut *home, Arc::clone(channel));
        drop(home);
        // The old channel is dropped after the lock was released, because dropping its last owner closes it.
        self.keep_open(before);
        Ok(())
    }

    /// Keeps a channel open on which the kernel may have requests for this listener. Closing the channel would make the
    /// kernel free the requests, and access them again when the listener is destroyed.
    fn keep_open(&self, channel: Arc<EventChannel>) {
        if self.listens.load(Ordering::Relaxed) {
            let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
            if !left.iter().any(|other| Arc::ptr_eq(other, &channel)) {
                left.push(channel);
            }
        }
    }
}

/// Prevents other threads from taking events on two channels. All threads lock in the same order, because a thread that
/// waits to take an event blocks new lock holders. Otherwise two threads that hold one lock each and wait for the other
/// lock would deadlock.
fn lock_both<'a>(a: &'a Arc<EventChannel>, b: &'a Arc<EventChannel>) -> [RwLockReadGuard<'a, ()>; 2] {
    if Arc::as_ptr(a) < Arc::as_ptr(b) {
        let first = a.lock_calls();
        [first, b.lock_calls()]
    } else {
        let first = b.lock_calls();
        [first, a.lock_calls()]
    }
}
