//! The driver's function in an object, which ours replaces.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function pointer of type `F`, or none.
pub(super) struct Original<F>(AtomicPtr<c_void>, PhantomData<F>);

impl<F: Copy> Original<F> {
    pub(super) const fn none() -> Self {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        Self(AtomicPtr::new(std::ptr::null_mut()), PhantomData)
    }

    /// The driver's function.
    #[inline]
    pub(super) fn get(&self) -> Option<F> {
        let function = self.0.load(Ordering::Relaxed);
        // SAFETY: `take` stored a function of this type, which has the size of a pointer.
        (!function.is_null()).then(|| unsafe { std::mem::transmute_copy(&function) })
    }

    /// Keeps the function of `other`.
    pub(super) fn copy(&self, other: &Self) {
        self.0.store(other.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The object has no such function.
    pub(super) fn clear(&self) {
        self.0.store(std::ptr::null_mut(), Ordering::Relaxed);
    }

    /// First keeps the function in `place`; then, when other threads find the record, replaces it by `ours`. A null pointer
    /// stays: the driver lacks the function, and programs check for that.
    ///
    /// # Safety
    ///
    /// `place` can be read and written, and no other thread adopts the object.
    pub(super) unsafe fn take(&self, step: Step, place: *mut Option<F>, ours: F) {
        // SAFETY: by contract `place` is readable and writable; an optional function has the representation of a pointer.
        unsafe {
            let found: *mut c_void = place.cast::<*mut c_void>().read();
            let ours: *mut c_void = std::mem::transmute_copy(&ours);
            match step {
                Step::Keep if found != ours => self.0.store(found, Ordering::Relaxed),
                Step::Replace if !found.is_null() => place.cast::<*mut c_void>().write(ours),
                _ => {}
            }
        }
    }
}

/// The steps of adopting an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The driver's functions go into the record.
    Keep,
    /// Ours go into the object.
    Replace,
}

impl<F> fmt::Debug for Original<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Original").field(&self.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Add = extern "C" fn(i32) -> i32;

    extern "C" fn driver(number: i32) -> i32 {
        number + 1
    }

    extern "C" fn ours(number: i32) -> i32 {
        number + 2
    }

    fn take(original: &Original<Add>, place: &mut Option<Add>) {
        for step in [Step::Keep, Step::Replace] {
            // SAFETY: the variable is this thread's.
            unsafe { original.take(step, &raw mut *place, ours) };
        }
    }

    #[test]
    fn function_is_taken_once() {
        let original = Original::<Add>::none();
        let mut place: Option<Add> = Some(driver);
        for _ in 0..2 {
            take(&original, &mut place);
            assert_eq!(place.map(|function| function(0)), Some(2));
            assert_eq!(original.get().map(|function| function(0)), Some(1));
        }
    }

    #[test]
    fn missing_function_stays_missing() {
        let original = Original::<Add>::none();
        let mut place: Option<Add> = None;
        take(&original, &mut place);
        assert!(place.is_none() && original.get().is_none());
    }
}
