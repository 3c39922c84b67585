//! Signal handlers that use streams. A handler may interrupt a call of this library, whose locks its thread holds. So it
//! gets `EAGAIN` or `EINTR` for a stream instead of waiting for them. A call that sleeps holds no locks.

use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// This thread is in a call that takes locks.
#[derive(Debug)]
pub(crate) struct Inside(PhantomData<*const ()>);

impl Inside {
    /// Returns `None` if the thread was in a call before.
    pub(crate) fn enter() -> Option<Inside> {
        if IS_INSIDE.replace(true) { None } else { Some(Inside(PhantomData)) }
    }

    /// Sleeps, without locks.
    pub(crate) fn sleep<T>(&self, sleep: impl FnOnce() -> T) -> T {
        IS_INSIDE.set(false);
        let result = sleep();
        IS_INSIDE.set(true);
        result
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        IS_INSIDE.set(false);
    }
}

/// The error number for a handler.
pub(crate) fn refusal(waits: bool) -> c_int {
    if waits { libc::EINTR } else { libc::EAGAIN }
}
