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
    /// `rdma_migrate_id(id, channel)` — moves the identifier to `channel`: its events come there from now on, and so do those
    /// that were waiting to be taken from the channel that it was on. Nothing happens where it is there already.
    ///
    /// The identifiers that come with connect requests are on their listener's channel. Each may be moved to a channel of its own.
    ///
    /// Connect requests that wait to be taken when their *listener* moves are lost (seen with Linux 6.1: the kernel has them on the
    /// old channel, and the library does not find them), and their peers wait until the listener goes: take them first. The old
    /// channel stays open as long as the listener.
    ///
    /// C's null channel, which makes the calls on an identifier wait, cannot be given.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the channel is of another provider than the identifier.
    /// - else the errno of the library.
    ///
    /// The identifier stays where it is then.
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
            // No event is taken from either. So none of this identifier's waits for its acknowledgement, for which the library
            // waits here, and it is found on the new channel by whoever takes the first.
            let _calls = lock_both(&home, channel);
            // What no event may be taken for moves along.
            let holds = self.holds.load(Ordering::Relaxed);
            if holds {
                channel.hold();
            }
            channel.identifiers().insert(self.raw, self);
            clear_errno();
            // SAFETY: the identifier and both channels are live, and nobody else uses the identifier.
            let ret = unsafe { sys::rdma_migrate_id(self.raw.as_ptr(), channel.raw()) };
            if ret != 0 {
                let errno = errno_of(ret);
                channel.identifiers().move_out(self.raw, Arc::as_ptr(self));
                if holds {
                    channel.release();
                }
                let error = VerbError::new("rdma_migrate_id", errno);
                return Err(match errno.raw() {
                    libc::EINVAL => {
                        error.with_hint("perhaps the channel belongs to another provider than the identifier")
                    }
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
        // Without the lock: its last owner closes it.
        self.keep_open(before);
        Ok(())
    }

    /// A channel on which the kernel may have requests for this listener is not closed before it: the kernel would free them, and
    /// look at them again when the listener goes.
    fn keep_open(&self, channel: Arc<EventChannel>) {
        if self.listens.load(Ordering::Relaxed) {
            let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
            if !left.iter().any(|other| Arc::ptr_eq(other, &channel)) {
                left.push(channel);
            }
        }
    }
}

/// Keeps calls on identifiers of two channels apart from the taking of their events, in one order for all: who waits to take an
/// event lets nobody in after him, so that two who hold one each and want the other's would wait for ever.
fn lock_both<'a>(a: &'a Arc<EventChannel>, b: &'a Arc<EventChannel>) -> [RwLockReadGuard<'a, ()>; 2] {
    if Arc::as_ptr(a) < Arc::as_ptr(b) {
        let first = a.lock_calls();
        [first, b.lock_calls()]
    } else {
        let first = b.lock_calls();
        [first, a.lock_calls()]
    }
}
