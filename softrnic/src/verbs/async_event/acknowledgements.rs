//! The counters of acknowledged events, which stand in the C structs: whoever destroys an object waits for them.

use std::ptr;

use libc::{pthread_cond_t, pthread_mutex_t};
use rdma_mummy_sys::{ibv_cq, ibv_qp, ibv_srq};

use super::Element;

/// A C struct of whose asynchronous events the acknowledged ones are counted.
pub(crate) trait Acknowledged: Sized {
    fn element(object: *mut Self) -> Element;

    /// # Safety
    ///
    /// `object` is there.
    unsafe fn acknowledgements(object: *mut Self) -> Acknowledgements;
}

impl Acknowledged for ibv_cq {
    fn element(object: *mut Self) -> Element {
        Element::Queue(object)
    }

    unsafe fn acknowledgements(object: *mut Self) -> Acknowledgements {
        // SAFETY: the caller's promise: the fields are there.
        unsafe {
            Acknowledgements {
                mutex: &raw mut (*object).mutex,
                condition: &raw mut (*object).cond,
                count: &raw mut (*object).async_events_completed,
            }
        }
    }
}

impl Acknowledged for ibv_qp {
    fn element(object: *mut Self) -> Element {
        Element::Pair(object)
    }

    unsafe fn acknowledgements(object: *mut Self) -> Acknowledgements {
        // SAFETY: the caller's promise: the fields are there.
        unsafe {
            Acknowledgements {
                mutex: &raw mut (*object).mutex,
                condition: &raw mut (*object).cond,
                count: &raw mut (*object).events_completed,
            }
        }
    }
}

impl Acknowledged for ibv_srq {
    fn element(object: *mut Self) -> Element {
        Element::Shared(object)
    }

    unsafe fn acknowledgements(object: *mut Self) -> Acknowledgements {
        // SAFETY: the caller's promise: the fields are there.
        unsafe {
            Acknowledgements {
                mutex: &raw mut (*object).mutex,
                condition: &raw mut (*object).cond,
                count: &raw mut (*object).events_completed,
            }
        }
    }
}

/// A count in a C struct, with what guards it and what is told when it grows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledgements {
    pub(crate) mutex: *mut pthread_mutex_t,
    pub(crate) condition: *mut pthread_cond_t,
    pub(crate) count: *mut u32,
}

impl Acknowledgements {
    /// Makes the mutex and the condition ready for use.
    ///
    /// # Safety
    ///
    /// The object is there, and nobody uses it yet.
    pub(crate) unsafe fn begin(self) {
        // SAFETY: both can be written, are not in use, and get the default attributes.
        unsafe {
            libc::pthread_mutex_init(self.mutex, ptr::null());
            libc::pthread_cond_init(self.condition, ptr::null());
        }
    }

    /// Ends them.
    ///
    /// # Safety
    ///
    /// They were begun, and nobody uses them any more.
    pub(crate) unsafe fn end(self) {
        // SAFETY: the caller's promise.
        unsafe {
            libc::pthread_cond_destroy(self.condition);
            libc::pthread_mutex_destroy(self.mutex);
        }
    }

    /// So many more were acknowledged.
    ///
    /// # Safety
    ///
    /// They were begun and are not ended.
    pub(crate) unsafe fn add(self, count: u32) {
        // SAFETY: the caller's promise; the count is written under the mutex alone.
        unsafe {
            libc::pthread_mutex_lock(self.mutex);
            *self.count = (*self.count).wrapping_add(count);
            libc::pthread_cond_broadcast(self.condition);
            libc::pthread_mutex_unlock(self.mutex);
        }
    }

    /// Waits until so many were acknowledged, of which there may be more where a program is wrong.
    ///
    /// # Safety
    ///
    /// As for [`add`](Self::add).
    pub(crate) unsafe fn wait_for(self, taken: u32) {
        // SAFETY: the caller's promise; the count is read under the mutex alone.
        unsafe {
            libc::pthread_mutex_lock(self.mutex);
            // The difference of two counts that wrap around.
            while taken.wrapping_sub(*self.count).cast_signed() > 0 {
                libc::pthread_cond_wait(self.condition, self.mutex);
            }
            libc::pthread_mutex_unlock(self.mutex);
        }
    }
}
