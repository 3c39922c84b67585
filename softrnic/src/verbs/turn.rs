//! The lock for polls and batches. It has no guard, because one C function acquires it and another one releases it.

use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::sys::errno::Errno;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// The value of the word if the lock is held and other threads wait for it.
const AWAITED: u32 = 2;

/// How long a thread waits until the owner releases the lock. Polls and batches take microseconds, so an owner that
/// holds the lock for longer has probably forgotten to release it.
const LIMIT: Duration = Duration::from_secs(10);

/// A lock that any thread may release.
#[derive(Debug, Default)]
pub(super) struct Turn {
    word: AtomicU32,
    /// The number of the thread that holds the lock, as [`this_thread`] returns it, or zero.
    owner: AtomicUsize,
}

/// Returns a number that is unique among running threads and never zero.
fn this_thread() -> usize {
    thread_local!(static PLACE: u8 = const { 0 });
    PLACE.with(|place| ptr::from_ref(place).addr())
}

impl Turn {
    /// Waits for the lock and acquires it.
    ///
    /// # Errors
    ///
    /// `EBUSY` if this thread already holds the lock, because waiting would deadlock, or if another thread keeps the
    /// lock for [`LIMIT`].
    pub(super) fn take(&self) -> Result<(), Errno> {
        self.take_within(LIMIT)
    }

    fn take_within(&self, limit: Duration) -> Result<(), Errno> {
        if self.is_mine() {
            return Err(Errno::BUSY);
        }
        if self.word.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait(limit)?;
        }
        self.owner.store(this_thread(), Ordering::Relaxed);
        Ok(())
    }

    /// Whether this thread holds the lock.
    pub(super) fn is_mine(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == this_thread()
    }

    #[cold]
    fn wait(&self, limit: Duration) -> Result<(), Errno> {
        let end = Instant::now() + limit;
        while self.word.swap(AWAITED, Ordering::Acquire) != FREE {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Errno::BUSY);
            }
            let left =
                libc::timespec { tv_sec: left.as_secs() as libc::time_t, tv_nsec: left.subsec_nanos() as libc::c_long };
            // SAFETY: the kernel reads the word and the time, which are alive, and sleeps while the word has this
            // value. A signal only ends the sleep early.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.word.as_ptr(),
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    AWAITED,
                    &raw const left,
                )
            };
        }
        Ok(())
    }

    /// Releases the lock.
    pub(super) fn give(&self) {
        self.owner.store(0, Ordering::Relaxed);
        if self.word.swap(FREE, Ordering::Release) == AWAITED {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let one = 1_i32;
        // SAFETY: the kernel does not dereference the address.
        unsafe { libc::syscall(libc::SYS_futex, self.word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, one) };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;

    use std::time::Duration;

    use super::Turn;
    use crate::sys::errno::Errno;

    struct Counter {
        turn: Turn,
        count: UnsafeCell<u64>,
    }

    // SAFETY: the count is used by the thread that holds the turn.
    unsafe impl Sync for Counter {}

    #[test]
    fn one_thread_at_a_time_holds_the_turn() {
        const EACH: u64 = if cfg!(miri) { 50 } else { 20_000 };
        let counter = Counter { turn: Turn::default(), count: UnsafeCell::new(0) };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    // The closure captures the whole struct instead of a field.
                    let counter = &counter;
                    for at in 0..EACH {
                        assert_eq!(counter.turn.take(), Ok(()));
                        // SAFETY: this thread holds the turn.
                        unsafe { *counter.count.get() += 1 };
                        if at % 16 == 0 {
                            std::thread::yield_now();
                        }
                        counter.turn.give();
                    }
                });
            }
        });
        assert_eq!(counter.count.into_inner(), 4 * EACH);
    }

    #[test]
    fn thread_that_waits_for_a_forgotten_owner_is_refused() {
        let turn = Turn::default();
        assert_eq!(std::thread::scope(|scope| scope.spawn(|| turn.take()).join().unwrap()), Ok(()));
        assert_eq!(turn.take_within(Duration::from_millis(20)), Err(Errno::BUSY));
        turn.give();
        assert_eq!(turn.take(), Ok(()));
    }

    #[test]
    fn thread_that_holds_the_turn_is_refused() {
        let turn = Turn::default();
        assert_eq!(turn.take(), Ok(()));
        assert_eq!(turn.take(), Err(Errno::BUSY));
        std::thread::scope(|scope| scope.spawn(|| turn.give()).join()).unwrap_or_default();
        assert_eq!(turn.take(), Ok(()));
    }
}
