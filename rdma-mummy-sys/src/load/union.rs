//! One list out of those of several providers.
//!
//! The array is made here, and remembers the arrays that it was put together from: freeing it gives each of them back
//! to the provider that made it. Where nobody but the system's library provides, its own array is handed out as it is.

use core::ffi::c_int;
use core::ptr;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{failure, gate};

/// A function that makes an array of pointers, ends it with a null pointer, and stores how many it holds.
pub(crate) type Get<T> = unsafe extern "C" fn(*mut c_int) -> *mut *mut T;
/// The function that frees such an array.
pub(crate) type Free<T> = unsafe extern "C" fn(*mut *mut T);

/// One who can contribute to a list.
pub(crate) struct Source<T, F> {
    pub(crate) get: Get<T>,
    pub(crate) free: Option<Free<T>>,
    /// Runs on each element of its array, and returns whether the element enters the list.
    pub(crate) each: F,
}

/// An array of a provider, and how it is freed.
struct Part<T> {
    array: *mut *mut T,
    free: Option<Free<T>>,
}

/// What a list that was handed out holds on to. Its address is that of the elements.
struct Joined<T> {
    elements: Vec<*mut T>,
    parts: Vec<Part<T>>,
}

// SAFETY: the pointers are carried from the call that makes a list to the one that frees it, on any thread, as the C
// functions behind them allow. The elements are not looked at in between.
unsafe impl<T> Send for Joined<T> {}

/// The lists of one kind that are handed out at the moment.
pub(crate) struct Lists<T>(Mutex<BTreeMap<usize, Joined<T>>>);

impl<T> Lists<T> {
    pub(crate) const fn new() -> Self {
        Lists(Mutex::new(BTreeMap::new()))
    }

    /// Joins the lists of `sources`, stores the number of elements in `count` unless it is null, and returns the array.
    /// A source that fails is passed over; when all fail, the result is null and errno that of the first failure.
    /// `failed_before` is the errno of a source that could not even be asked.
    ///
    /// # Safety
    ///
    /// `count` is null or can be written to. Each source is a pair of functions as described at their types.
    pub(crate) unsafe fn join<F: Fn(*mut T) -> bool>(
        &self,
        count: *mut c_int,
        failed_before: Option<c_int>,
        sources: impl Iterator<Item = Source<T, F>>,
    ) -> *mut *mut T {
        // The system's function takes a lock of its library.
        let _hold = gate::hold();
        let mut joined = Joined { elements: Vec::new(), parts: Vec::new() };
        let mut first_failure = failed_before;
        for source in sources {
            let mut found: c_int = 0;
            // SAFETY: the function is of this kind by contract, and `found` can be written to.
            let array = unsafe { (source.get)(&raw mut found) };
            if array.is_null() {
                first_failure = first_failure.or(Some(failure::errno()));
                continue;
            }
            for index in 0..usize::try_from(found).unwrap_or(0) {
                // SAFETY: the array holds as many elements as its function said.
                let element = unsafe { *array.add(index) };
                if (source.each)(element) {
                    joined.elements.push(element);
                }
            }
            joined.parts.push(Part { array, free: source.free });
        }
        let total = c_int::try_from(joined.elements.len()).unwrap_or(c_int::MAX);
        let failed = joined.parts.is_empty();
        if !count.is_null() {
            // SAFETY: `count` can be written to by contract.
            unsafe { *count = if failed { 0 } else { total } };
        }
        if failed {
            // Nobody who could be asked at all counts as an operation that is not supported.
            return failure::null(first_failure.unwrap_or(libc::EOPNOTSUPP));
        }
        joined.elements.push(ptr::null_mut());
        let array = joined.elements.as_mut_ptr();
        self.lock().insert(array.addr(), joined);
        array
    }

    /// Frees `list` if it was made here; `false` if it was not.
    ///
    /// # Safety
    ///
    /// `list` is not used again if it was made here.
    pub(crate) unsafe fn free(&self, list: *mut *mut T) -> bool {
        let _hold = gate::hold();
        let Some(joined) = self.lock().remove(&list.addr()) else { return false };
        for part in joined.parts {
            if let Some(free) = part.free {
                // SAFETY: the array came from the function that this one belongs to, and is given back once: the entry
                // was taken out above.
                unsafe { free(part.array) };
            }
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Joined<T>>> {
        // An entry is whole whenever the lock is free, even if a thread panicked with it held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
