//! Ctrl-C and its like as events, so that a run ends in order: QEMU first, then this program.
//!
//! (QEMU also dies with this program when that gets no time for anything; see `machine`.)

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The signals that ask a program to end.
const SIGNALS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Watches for the signals until dropped; then they act as before.
///
/// Make it on the main thread before others start: a thread inherits which signals it leaves to the watcher.
pub(crate) struct Interrupts {
    before: libc::sigset_t,
    stop: Arc<AtomicBool>,
    watcher: Option<JoinHandle<()>>,
}

impl Interrupts {
    /// Calls `tell` with the number of each signal that arrives.
    pub(crate) fn watch(tell: impl Fn(i32) + Send + 'static) -> Self {
        let set = set();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both pointers are to sets of this frame; pthread_sigmask fills `before`, and cannot fail for SIG_BLOCK.
        let before = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, before.as_mut_ptr());
            before.assume_init()
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let watcher = std::thread::spawn(move || {
            let pause = libc::timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            while !stopped.load(Ordering::Relaxed) {
                // SAFETY: the set and the time live in this closure for the whole call; a null pointer asks for no details.
                let signal = unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const pause) };
                if signal > 0 {
                    tell(signal);
                }
            }
        });
        Self { before, stop, watcher: Some(watcher) }
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
        // SAFETY: `before` is the set that pthread_sigmask filled; a null pointer asks for no old set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

fn set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset fills the set that it is given, and sigaddset takes valid signal numbers only.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in SIGNALS {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}
