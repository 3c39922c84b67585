//! A lock against `fork(2)`: no thread forks while another holds a lock that the child would need.
//!
//! The child has one thread. Locks that other threads of the parent held stay locked in it forever. So a thread that
//! uses a lock of this crate or of the system's library calls [`hold`], and threads that fork wait for it. Loading a
//! library calls it, and so does listing devices, which takes a lock of libibverbs. A thread that forks also takes the
//! lock of the `objects`.
//!
//! Descriptors that a child must close are opened and closed under the lock, and devices are registered under it. The
//! data path does not use it, except that the first message to another process opens a socket. Other calls of the
//! system's library are as safe during a fork as in C.

use core::cell::{Cell, UnsafeCell};
use std::sync::{Once, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::objects::{self, Objects};

/// Read-locked by threads that must finish before a fork, write-locked by a thread that forks.
static GATE: RwLock<()> = RwLock::new(());
/// The locks held by a thread that forks.
static TAKEN: Taken = Taken(UnsafeCell::new(None));

struct Taken(UnsafeCell<Option<Both>>);

/// The two locks. The fork lock is taken first; the order in which they are dropped does not matter.
type Both = (RwLockWriteGuard<'static, Objects>, RwLockWriteGuard<'static, ()>);

// SAFETY: only the thread that write-locked `GATE` uses it.
unsafe impl Sync for Taken {}

thread_local! {
    /// The number of holds of this thread. A thread that forks has one, so that other fork handlers may call functions
    /// that call [`hold`].
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Whether this thread has write-locked `GATE`.
    static FORKS: Cell<bool> = const { Cell::new(false) };
}

/// While a `Hold` exists, no other thread forks.
#[derive(Debug)]
pub struct Hold(#[expect(dead_code, reason = "it is held only to be dropped")] Option<RwLockReadGuard<'static, ()>>);

/// Prevents other threads from forking. A thread that already holds does not wait for a waiting fork.
pub fn hold() -> Hold {
    watch();
    let depth = DEPTH.replace(DEPTH.get() + 1);
    Hold((depth == 0).then(|| GATE.read().unwrap_or_else(PoisonError::into_inner)))
}

impl Drop for Hold {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Installs the fork handlers.
pub(crate) fn watch() {
    extern "C" fn before() {
        // A hold of this thread continues in the child.
        if DEPTH.get() > 0 {
            return;
        }
        let gate = GATE.write().unwrap_or_else(PoisonError::into_inner);
        let both = (objects::lock(), gate);
        // SAFETY: this thread write-locked `GATE`, so no other thread uses it before the unlock.
        unsafe { *TAKEN.0.get() = Some(both) };
        FORKS.set(true);
        DEPTH.set(1);
    }
    extern "C" fn after() {
        if !FORKS.replace(false) {
            return;
        }
        DEPTH.set(0);
        // SAFETY: the same thread, or its copy in the child, which still has the lock.
        let both = unsafe { (*TAKEN.0.get()).take() };
        drop(both);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if !cfg!(miri) {
            // SAFETY: the handlers lock and unlock, and stay valid until the process exits. If registration fails for
            // lack of memory, children run without this protection.
            unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "creates processes")]
    fn fork_waits_for_other_holders_but_not_own() {
        let is_out = AtomicBool::new(false);
        thread::scope(|scope| {
            let outer = hold();
            let forks = scope.spawn(|| {
                let status = fork_and_wait();
                assert!(is_out.load(Ordering::SeqCst), "the thread forked while another thread held the lock");
                status
            });
            // This thread can call `hold` again while the other thread waits to fork.
            thread::sleep(Duration::from_millis(50));
            let inner = hold();
            drop(inner);
            assert_eq!(fork_and_wait(), 0);
            is_out.store(true, Ordering::SeqCst);
            drop(outer);
            assert_eq!(forks.join().expect("the thread does not panic"), 0);
        });
        assert_eq!(DEPTH.get(), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "creates processes")]
    fn other_fork_handlers_may_hold() {
        extern "C" fn passes() {
            drop(hold());
        }
        // Before a fork, handlers run in reverse order of their registration. So this handler runs after the lock's,
        // unless another test has registered the lock's handler already. SAFETY: the handlers only hold the lock, and
        // stay valid until the process exits.
        unsafe { libc::pthread_atfork(Some(passes), Some(passes), Some(passes)) };
        watch();
        assert_eq!(fork_and_wait(), 0);
        assert_eq!(DEPTH.get(), 0);
    }

    /// Forks. The child takes the lock too.
    fn fork_and_wait() -> i32 {
        // SAFETY: the child takes a lock that is free for it, and exits.
        unsafe {
            match libc::fork() {
                0 => {
                    libc::alarm(20);
                    drop(hold());
                    libc::_exit(0);
                }
                child => {
                    let mut status = -1;
                    assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                    status
                }
            }
        }
    }
}
