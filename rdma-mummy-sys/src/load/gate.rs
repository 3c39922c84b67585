//! What a child after `fork(2)` must not find half done.
//!
//! A child has one thread, and of what the others of its parent were doing only the locks that they held: each of those would be
//! waited for for ever. So whoever is inside something with a lock of its own, here or in the system's library, keeps threads from
//! forking until it is out again ([`hold`]): the loading of a library, the listing of devices, which takes a lock of libibverbs. And the
//! lock of the `objects` beside it is taken by each thread that forks.
//!
//! Descriptors that a child closes are opened and closed inside too, and devices registered. Nothing of this is on the data path, but for the
//! first message to another process, which opens a socket; and a call of the system's library that is not listed above is as safe beside a fork as in C.

use core::cell::{Cell, UnsafeCell};
use std::sync::{Once, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::objects::{self, Objects};

/// Read by who is inside something, written by who forks.
static GATE: RwLock<()> = RwLock::new(());
/// What a thread that forks has taken.
static TAKEN: Taken = Taken(UnsafeCell::new(None));

struct Taken(UnsafeCell<Option<Both>>);

/// Let go in this order, which does not matter; taken with the gate first.
type Both = (RwLockWriteGuard<'static, Objects>, RwLockWriteGuard<'static, ()>);

// SAFETY: it is used only by the thread that has the gate for itself.
unsafe impl Sync for Taken {}

thread_local! {
    /// How often this thread is inside. One that forks is, so that handlers of others may call what passes the gate.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// It has the gate for itself.
    static FORKS: Cell<bool> = const { Cell::new(false) };
}

/// No thread forks while it is there, but this one.
#[derive(Debug)]
pub struct Hold(#[expect(dead_code, reason = "it is there to be dropped")] Option<RwLockReadGuard<'static, ()>>);

/// Keeps other threads from forking. A thread that is inside already does not wait for one that waits for it.
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

/// Has every thread that forks from now on pass the gate.
pub(crate) fn watch() {
    extern "C" fn before() {
        // What this thread is inside of, it will be in the child too.
        if DEPTH.get() > 0 {
            return;
        }
        let gate = GATE.write().unwrap_or_else(PoisonError::into_inner);
        let both = (objects::lock(), gate);
        // SAFETY: this thread has the gate, and nobody else uses it before it is given back.
        unsafe { *TAKEN.0.get() = Some(both) };
        FORKS.set(true);
        DEPTH.set(1);
    }
    extern "C" fn after() {
        if !FORKS.replace(false) {
            return;
        }
        DEPTH.set(0);
        // SAFETY: the same thread, or its copy in the child, still with the gate.
        let both = unsafe { (*TAKEN.0.get()).take() };
        drop(both);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if !cfg!(miri) {
            // SAFETY: the handlers take locks and let them go; they are there as long as the process. Without memory to remember
            // them, children are as without them.
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
    #[cfg_attr(miri, ignore = "makes processes")]
    fn who_forks_waits_for_others_that_are_inside_and_not_for_itself() {
        let is_out = AtomicBool::new(false);
        thread::scope(|scope| {
            let outer = hold();
            let forks = scope.spawn(|| {
                let status = fork_and_wait();
                assert!(is_out.load(Ordering::SeqCst), "it has forked while another thread was inside");
                status
            });
            // Also while that one waits already.
            thread::sleep(Duration::from_millis(50));
            let inner = hold();
            drop(inner);
            assert_eq!(fork_and_wait(), 0);
            is_out.store(true, Ordering::SeqCst);
            drop(outer);
            assert_eq!(forks.join().expect("it does not panic"), 0);
        });
        assert_eq!(DEPTH.get(), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes processes")]
    fn handlers_of_others_pass_the_gate_of_the_thread_that_forks() {
        extern "C" fn passes() {
            drop(hold());
        }
        // Those that are called before a fork are called in reverse: this one comes after the gate's where it was there first.
        // SAFETY: the handlers do nothing but pass the gate, and are there as long as the process.
        unsafe { libc::pthread_atfork(Some(passes), Some(passes), Some(passes)) };
        watch();
        assert_eq!(fork_and_wait(), 0);
        assert_eq!(DEPTH.get(), 0);
    }

    /// Forks; the child passes the gate too.
    fn fork_and_wait() -> i32 {
        // SAFETY: the child takes a lock, which is free for it, and ends.
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
