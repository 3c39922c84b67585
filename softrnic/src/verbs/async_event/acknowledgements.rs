//! The counters of acknowledged events in the C structs. The verb that destroys an object waits until all events of the
//! object are counted there.

use std::ptr;

use libc::{pthread_cond_t, pthread_mutex_t};
use rdma_mummy_sys::{ibv_cq, ibv_qp, ibv_srq};

use super::Element;

/// A C struct that counts its acknowledged asynchronous events.
pub(crate) trait Acknowledged: Sized {
    fn element(object: *mut Self) -> Element;

    /// Returns the object's counter.
    ///
    /// # Safety
    ///
    /// `object` is alive.
    unsafe fn acknowledgements(object: *mut Self) -> Acknowledgements;
}

impl Acknowledged for ibv_cq {
    fn element(object: *mut Self) -> Element {
        Element::Queue(object)
    }

    unsafe fn acknowledgements(object: *mut Self) -> Acknowledgements {
        // SAFETY: guaranteed by the caller: the fields exist.
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
        // SAFETY: guaranteed by the caller: the fields exist.
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
        // SAFETY: guaranteed by the caller: the fields exist.
        unsafe {
            Acknowledgements {
                mutex: &raw mut (*object).mutex,
                condition: &raw mut (*object).cond,
                count: &raw mut (*object).events_completed,
            }
        }
    }
}

/// A counter in a C struct, with its mutex and condition variable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledgements {
    pub(crate) mutex: *mut pthread_mutex_t,
    pub(crate) condition: *mut pthread_cond_t,
    pub(crate) count: *mut u32,
}

impl Acknowledgements {
    /// Initializes the mutex and the condition variable.
    ///
    /// # Safety
    ///
    /// The object is alive and not used yet.
    pub(crate) unsafe fn begin(self) {
        // SAFETY: the mutex and the condition variable are writable and unused; null selects the default attributes.
        unsafe {
            libc::pthread_mutex_init(self.mutex, ptr::null());
            libc::pthread_cond_init(self.condition, ptr::null());
        }
    }

    /// Destroys the mutex and the condition variable.
    ///
    /// # Safety
    ///
    /// The mutex and the condition variable were initialized and are no longer used.
    pub(crate) unsafe fn end(self) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            libc::pthread_cond_destroy(self.condition);
            libc::pthread_mutex_destroy(self.mutex);
        }
    }

    /// Adds `count` to the number of acknowledged events.
    ///
    /// # Safety
    ///
    /// The mutex and the condition variable are initialized and not destroyed.
    pub(crate) unsafe fn add(self, count: u32) {
        // SAFETY: guaranteed by the caller; the count is written only under the mutex.
        unsafe {
            libc::pthread_mutex_lock(self.mutex);
            *self.count = (*self.count).wrapping_add(count);
            libc::pthread_cond_broadcast(self.condition);
            libc::pthread_mutex_unlock(self.mutex);
        }
    }

    /// Waits until at least `taken` events are acknowledged. An incorrect program may acknowledge more events than it
    /// has taken.
    ///
    /// # Safety
    ///
    /// As for [`add`](Self::add).
    pub(crate) unsafe fn wait_for(self, taken: u32) {
        // SAFETY: guaranteed by the caller; the count is read only under the mutex.
        unsafe {
            libc::pthread_mutex_lock(self.mutex);
            // Both counters may wrap around, so the sign of their difference is tested.
            while taken.wrapping_sub(*self.count).cast_signed() > 0 {
                libc::pthread_cond_wait(self.condition, self.mutex);
            }
            libc::pthread_mutex_unlock(self.mutex);
        }
    }
}
