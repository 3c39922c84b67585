//! `fork(2)`: a child shares the descriptors of its parent's connections, and may not use them.
//!
//! A read by the child would take what the parent waits for. At the fork, another thread may also have held a lock. So
//! the handles of a parent do nothing in a child but return an error; the child creates workers of its own.

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of forks between the first process and this process.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// A process, as opposed to its parents and children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Generation(u32);

impl Generation {
    /// This process.
    pub(super) fn this() -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            if !cfg!(miri) {
                // SAFETY: the handler only writes to an atomic, which is allowed between fork and exec. If the
                // registration fails for lack of memory, children are not counted.
                unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            }
        });
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether this process is a child, or a child's child.
    #[inline]
    pub(super) fn is_over(self) -> bool {
        self.0 != GENERATION.load(Ordering::Relaxed)
    }

    /// # Errors
    ///
    /// `Unsupported` if this process is a child.
    #[inline]
    pub(super) fn check(self) -> io::Result<()> {
        if self.is_over() { Err(inherited()) } else { Ok(()) }
    }
}

/// Runs in each child, on its only thread. The function must not lock or allocate.
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

#[cold]
fn inherited() -> io::Error {
    let text = "the worker belongs to the parent of this process (fork); create another one here";
    io::Error::new(io::ErrorKind::Unsupported, text)
}
