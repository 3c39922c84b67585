//! `pthread_cancel(3)`: no function of the library is a cancellation point.
//!
//! The calls of the system in which the library sleeps are cancellation points. A thread that ended there would unwind
//! through frames of Rust, and would keep the lock of the worker.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE`
const DISABLE: c_int = 1;

/// Delays the cancellation of the thread until it is dropped.
#[derive(Debug)]
pub(crate) struct Uncancelled {
    before: c_int,
    /// The state belongs to the thread.
    of_thread: PhantomData<*const ()>,
}

impl Uncancelled {
    #[inline]
    pub(crate) fn begin() -> Self {
        let mut before = DISABLE;
        // SAFETY: the function writes the old state to `before`. It fails only for an unknown state.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self { before, of_thread: PhantomData }
    }
}

impl Drop for Uncancelled {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: restores the state that `begin` has read. The old state is not needed.
        unsafe { pthread_setcancelstate(self.before, ptr::null_mut()) };
    }
}
