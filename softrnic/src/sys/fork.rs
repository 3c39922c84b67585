//! Handles `fork(2)`: a child process uses nothing of its parent's devices.
//!
//! At the fork, other threads of the parent may have held any lock, or may have been in the middle of any change. The
//! child therefore starts a new generation. Each generation has its own instance of every global ([`PerProcess`]) and
//! refuses contexts of earlier generations (`verbs/guard.rs`). The parent's objects stay unchanged in the child's
//! memory and are not accessed.

use std::fmt;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::descriptor;

/// The number of forks between the first process and this process.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Starts to count generations. Each child process that is forked after this call is a new generation.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if !cfg!(miri) {
            // SAFETY: the handler performs only operations that are allowed between fork and exec: it writes to atomics
            // and closes descriptors. If the registration fails for lack of memory, children are not counted.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        }
    });
}

/// Runs in each child, on its only thread. The function must not lock or allocate.
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    descriptor::close_all();
}

/// Returns the generation of this process, which is zero unless the process was forked.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// A value of which each process has its own instance. A child creates a new instance and ignores the one of its
/// parent.
pub(crate) struct PerProcess<T: 'static> {
    first: T,
    later: AtomicPtr<Later<T>>,
    make: fn() -> Box<T>,
}

struct Later<T> {
    generation: u32,
    value: Box<T>,
}

impl<T> PerProcess<T> {
    /// Creates the value. `first` is the instance of this process, and `make` creates the instance of a child.
    pub(crate) const fn new(first: T, make: fn() -> Box<T>) -> Self {
        Self { first, later: AtomicPtr::new(ptr::null_mut()), make }
    }

    #[inline]
    pub(crate) fn get(&'static self) -> &'static T {
        match generation() {
            0 => &self.first,
            generation => self.of(generation),
        }
    }

    #[cold]
    fn of(&'static self, generation: u32) -> &'static T {
        let mut known = self.later.load(Ordering::Acquire);
        loop {
            // SAFETY: `known` is null, or came from `Box::into_raw` below and is never freed.
            if let Some(later) = unsafe { known.as_ref() }
                && later.generation == generation
            {
                return &later.value;
            }
            let new = Box::into_raw(Box::new(Later { generation, value: (self.make)() }));
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
    fn each_generation_has_its_own_instance() {
        static NUMBERS: PerProcess<Mutex<u32>> = PerProcess::new(Mutex::new(1), || Box::new(Mutex::new(2)));
        assert!(ptr::eq(NUMBERS.get(), &raw const NUMBERS.first));
        let held = NUMBERS.get().lock().unwrap();
        let later = NUMBERS.of(1);
        assert!(ptr::eq(later, NUMBERS.of(1)));
        assert_eq!((*held, *later.lock().unwrap()), (1, 2));
        let held = later.lock().unwrap();
        assert_eq!(*NUMBERS.of(2).lock().unwrap(), 2, "the previous instance is locked");
        drop(held);
    }
}
