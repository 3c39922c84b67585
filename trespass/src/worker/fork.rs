//! `fork(2)`: a child shares the descriptors of its parent's connections, and may not use them.
//!
//! A read by the child would take what the parent waits for. At the fork, another thread may also have held a lock. So
//! the handles of a parent do nothing in a child but return an error; the child creates workers of its own.

use std::fmt;
use std::io;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The number of forks between the first process and this process.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// A process, as opposed to its parents and children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u32);

impl Generation {
    /// This process.
    pub fn this() -> Self {
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
    pub fn is_over(self) -> bool {
        self.0 != GENERATION.load(Ordering::Relaxed)
    }

    /// # Errors
    ///
    /// `Unsupported` if this process is a child.
    #[inline]
    pub fn check(self) -> io::Result<()> {
        if self.is_over() { Err(inherited()) } else { Ok(()) }
    }
}

/// Runs in each child, on its only thread. The function must not lock or allocate.
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

#[cold]
fn inherited() -> io::Error {
    let text = "the connections belong to the parent of this process (fork); create others here";
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// A value of which each process has its own instance: a child creates a new one, because another thread of its parent
/// may have held a lock of the parent's at the fork.
pub struct PerProcess<T: 'static> {
    first: T,
    later: AtomicPtr<Later<T>>,
    make: fn() -> T,
}

struct Later<T> {
    process: Generation,
    value: T,
}

impl<T> PerProcess<T> {
    /// Creates the value. `first` is the instance of this process, and `make` creates the instance of a child.
    pub const fn new(first: T, make: fn() -> T) -> Self {
        Self { first, later: AtomicPtr::new(ptr::null_mut()), make }
    }

    /// Returns the instance of this process.
    #[inline]
    pub fn get(&'static self) -> &'static T {
        match GENERATION.load(Ordering::Relaxed) {
            0 => &self.first,
            generation => self.of(Generation(generation)),
        }
    }

    #[cold]
    fn of(&'static self, process: Generation) -> &'static T {
        let mut known = self.later.load(Ordering::Acquire);
        loop {
            // SAFETY: `known` is null, or came from `Box::into_raw` below and is never freed.
            if let Some(later) = unsafe { known.as_ref() }
                && later.process == process
            {
                return &later.value;
            }
            let new = Box::into_raw(Box::new(Later { process, value: (self.make)() }));
            match self.later.compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: `new` is on the heap and never freed.
                Ok(_) => return unsafe { &(*new).value },
                Err(other) => {
                    known = other;
                    // SAFETY: `new` was created above and never published.
                    drop(unsafe { Box::from_raw(new) });
                }
            }
        }
    }
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerProcess").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn child_has_its_own_instance_while_its_parent_holds_the_lock() {
        static NUMBERS: PerProcess<Mutex<u32>> = PerProcess::new(Mutex::new(1), || Mutex::new(2));
        let held = NUMBERS.get().lock().unwrap();
        let child = NUMBERS.of(Generation(1));
        assert!(ptr::eq(child, NUMBERS.of(Generation(1))));
        assert_eq!((*held, *child.lock().unwrap()), (1, 2));
        let held = child.lock().unwrap();
        assert_eq!(*NUMBERS.of(Generation(2)).lock().unwrap(), 2, "the instance of the child's child");
        drop(held);
    }
}
