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
    /// `rdma_migrate_id(id, channel)` — moves the identifier to `channel`. New events arrive there, and so do events
    /// that were waiting on the old channel. Nothing happens if the identifier is already there.
    ///
    /// Identifiers of connect requests are on their listener's channel. Each can be moved to its own channel.
    ///
    /// Take all waiting connect requests before moving a *listener*: otherwise the requests are lost, and the peers
    /// wait until the listener is dropped. (Seen with Linux 6.1: the kernel keeps the requests on the old channel, and
    /// the library does not find them.) The old channel stays open as long as the listener.
    ///
    /// C's null channel, which makes calls on the identifier synchronous, is unsupported.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the channel and the identifier belong to different providers.
    /// - Otherwise the errno of the library.
    ///
    /// On errors the identifier stays where it is.
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
            // While both channels are locked, no event is taken from them. So the library, which waits here until this
            // identifier's events are acknowledged, does not wait forever; and the thread that takes the first event on
            // the new channel finds the identifier.
            let _calls = lock_both(&home, channel);
            // If the identifier holds its channel, it holds the new channel from now on.
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
        // Dropped without holding the lock, because dropping the last owner closes the channel.
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
