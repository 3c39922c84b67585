//! `fork(2)`: what a child process has of its parent's devices.
//!
//! Nothing: other threads of the parent may have held any lock, or been in the middle of anything. So the child begins anew. It
//! counts as another generation, each of which has its own of what is there once ([`PerProcess`]), and contexts of an earlier one
//! are not used any more (`verbs/guard.rs`). What the parent had stays as it was, and is not looked at.

use std::fmt;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::descriptor;

/// How often this process, and those that it came from, were forked.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Has every child that is forked from now on count as a new generation.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if !cfg!(miri) {
            // SAFETY: the handler does what is allowed between fork and exec: it writes to numbers and closes
            // descriptors. Where there is no memory to
            // remember it, children are as without it.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        }
    });
}

/// Runs in each child, in the one thread that it has. Nothing may be locked or allocated here.
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    descriptor::close_all();
}

/// Zero in a process that was not forked.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Something that each process has one of: a child's is a new one, whatever the parent's is like.
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
    /// `first` is that of the process itself, and `make` gives the same for a child.
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
            // SAFETY: it is null, or came from `Box::into_raw` below and is never freed.
            if let Some(later) = unsafe { known.as_ref() }
                && later.generation == generation
            {
                return &later.value;
            }
            let new = Box::into_raw(Box::new(Later { generation, value: (self.make)() }));
            match self.later.compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: it is on the heap, and never freed from now on.
                Ok(_) => return unsafe { &(*new).value },
                Err(other) => {
                    known = other;
                    // SAFETY: made above, and nobody has seen it.
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
    fn a_generation_has_one_and_another_generation_another() {
        static NUMBERS: PerProcess<Mutex<u32>> = PerProcess::new(Mutex::new(1), || Box::new(Mutex::new(2)));
        assert!(ptr::eq(NUMBERS.get(), &raw const NUMBERS.first));
        let held = NUMBERS.get().lock().unwrap();
        let later = NUMBERS.of(1);
        assert!(ptr::eq(later, NUMBERS.of(1)));
        assert_eq!((*held, *later.lock().unwrap()), (1, 2));
        let held = later.lock().unwrap();
        assert_eq!(*NUMBERS.of(2).lock().unwrap(), 2, "the one of before is locked");
        drop(held);
    }
}
