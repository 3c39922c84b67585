//! What is switched on. The data path reads one byte.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Once, OnceLock};
use std::time::Instant;

static ON: AtomicU8 = AtomicU8::new(0);

static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Whether this process was forked from one that has a lens.
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// The trace records each call, request and completion.
pub(crate) const TRACE: u8 = 1;
/// Calls, requests and completions are counted.
pub(crate) const COUNT: u8 = 2;
/// There is a schedule of faults.
pub(crate) const FAULTS: u8 = 4;

/// What is switched on.
#[inline]
pub(crate) fn on() -> u8 {
    ON.load(Ordering::Relaxed)
}

pub(crate) fn switch_on(what: u8) {
    start();
    ON.fetch_or(what, Ordering::Release);
}

pub(crate) fn switch_off(what: u8) {
    ON.fetch_and(!what, Ordering::AcqRel);
}

/// Records each fork. Switches everything off in children that are forked, which have neither the thread of the trace nor, perhaps, free locks.
pub(crate) fn watch_forks(in_parent: extern "C" fn()) {
    extern "C" fn in_child() {
        ON.store(0, Ordering::Relaxed);
        IS_CHILD.store(true, Ordering::Relaxed);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if !cfg!(miri) {
            // SAFETY: in the child, the handler only writes to an atomic. That of the parent has no requirements. If the
            // registration fails for lack of memory, children keep the lens.
            unsafe { libc::pthread_atfork(None, Some(in_parent), Some(in_child)) };
        }
    });
}

fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

/// Nanoseconds since the start, of a clock that all threads share.
pub(crate) fn now() -> u64 {
    start().elapsed().as_nanos().try_into().unwrap_or(u64::MAX)
}

/// The number that the kernel gave this thread.
pub(crate) fn thread() -> u32 {
    thread_local! {
        static THREAD: u32 = {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            // SAFETY: the call has no requirements.
            let id = if cfg!(miri) { 0 } else { unsafe { libc::gettid() } };
            u32::try_from(id).ok().filter(|&id| id != 0).unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed) + 1)
        };
    }
    THREAD.try_with(|thread| *thread).unwrap_or(0)
}
