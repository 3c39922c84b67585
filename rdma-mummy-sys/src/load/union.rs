//! Joining the lists of several providers.
//!
//! The joined array records its parts: freeing it returns each part to its provider. If only the system's library
//! returns a list, its array is passed on unchanged.

use core::ffi::c_int;
use core::ptr;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{failure, gate};

/// A function that creates a null-terminated array of pointers and stores their number.
pub(crate) type Get<T> = unsafe extern "C" fn(*mut c_int) -> *mut *mut T;
/// The function that frees an array of [`Get`].
pub(crate) type Free<T> = unsafe extern "C" fn(*mut *mut T);

/// A contributor to a list.
pub(crate) struct Source<T, F> {
    pub(crate) get: Get<T>,
    pub(crate) free: Option<Free<T>>,
    /// Called for each element of its array; returns whether to include the element.
    pub(crate) each: F,
}

/// An array of a provider, and the function that frees it.
struct Part<T> {
    array: *mut *mut T,
    free: Option<Free<T>>,
}

/// The parts of a returned list, whose address is that of the elements.
struct Joined<T> {
    elements: Vec<*mut T>,
    parts: Vec<Part<T>>,
}

// SAFETY: the pointers are kept from the call that creates a list to the one that frees it, on any thread, as the C
// functions permit. The elements are not accessed.
unsafe impl<T> Send for Joined<T> {}

/// The returned lists of one kind that were not freed yet.
pub(crate) struct Lists<T>(Mutex<BTreeMap<usize, Joined<T>>>);

impl<T> Lists<T> {
    pub(crate) const fn new() -> Self {
        Lists(Mutex::new(BTreeMap::new()))
    }

    /// Joins the lists of `sources`, stores the number of elements in `count` unless it is null, and returns the array.
    /// Skips a source that fails. If all fail, returns null with the errno of the first failure. `failed_before` is the
    /// errno of a source that could not be called.
    ///
    /// # Safety
    ///
    /// `count` is null or can be written. Each source is a pair of functions as their types describe.
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
            // SAFETY: by contract the function has this type's behaviour; `found` can be written.
            let array = unsafe { (source.get)(&raw mut found) };
            if array.is_null() {
                first_failure = first_failure.or(Some(failure::errno()));
                continue;
            }
            for index in 0..usize::try_from(found).unwrap_or(0) {
                // SAFETY: the array has the number of elements that its function stored.
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
            // SAFETY: `count` can be written by contract.
            unsafe { *count = if failed { 0 } else { total } };
        }
        if failed {
            // Without any source to call, the operation is not supported.
            return failure::null(first_failure.unwrap_or(libc::EOPNOTSUPP));
        }
        joined.elements.push(ptr::null_mut());
        let array = joined.elements.as_mut_ptr();
        self.lock().insert(array.addr(), joined);
        array
    }

    /// Frees `list` if it was created here; returns `false` otherwise.
    ///
    /// # Safety
    ///
    /// `list` is not used afterwards if it was created here.
    pub(crate) unsafe fn free(&self, list: *mut *mut T) -> bool {
        let _hold = gate::hold();
        let Some(joined) = self.lock().remove(&list.addr()) else { return false };
        for part in joined.parts {
            if let Some(free) = part.free {
                // SAFETY: the array came from the matching function, and is freed once: its entry was removed above.
                unsafe { free(part.array) };
            }
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Joined<T>>> {
        // An entry is consistent even if a thread panicked with the lock held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
