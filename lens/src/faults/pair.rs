//! What queue pairs and shared receive queues have for their faults.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{mem, ptr};

use rdma_mummy_sys as ffi;
use rdma_mummy_sys::load::front;

/// What a queue pair has for its faults.
#[derive(Debug)]
pub(crate) struct OfPair {
    number: AtomicU32,
    /// Held while a fault uses the two pointers below, which are null while their objects are being destroyed.
    in_use: Mutex<()>,
    address: AtomicPtr<ffi::ibv_qp>,
    /// Its identifier of librdmacm, if it has one.
    id: AtomicPtr<ffi::rdma_cm_id>,
    /// Its place in the order of creation, and that of its shared receive queue; zero for none.
    nth: AtomicU32,
    shared: AtomicU32,
    /// The status of the next completion with an error; zero for none.
    status: AtomicU32,
    /// Whether a request will complete with the status, so that flushed receives wait for it.
    is_expected: AtomicBool,
    /// Whether a receive has failed, so that later ones are flushed.
    has_failed_receive: AtomicBool,
    /// How often the program posted to it, sends and receives, and how many completions it had.
    turns: [AtomicU64; 3],
}

/// What a shared receive queue has for its faults.
#[derive(Debug, Default)]
pub(crate) struct OfShared {
    nth: AtomicU32,
    posts: AtomicU64,
}

/// Posts, receives and completions are counted separately.
#[derive(Clone, Copy, Debug)]
pub(super) enum Turn {
    Post,
    Receive,
    Completion,
}

/// The number of queue pairs and of shared receive queues that the program made.
static MADE: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

/// Queue pairs and shared receive queues are counted from now on.
pub(super) fn start() {
    MADE.iter().for_each(|made| made.store(0, Ordering::Relaxed));
}

impl OfShared {
    pub(crate) fn start(&self) {
        self.nth.store(MADE[1].fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.posts.store(0, Ordering::Relaxed);
    }

    /// It was made before the schedule, and has no place.
    pub(crate) fn forget(&self) {
        self.nth.store(0, Ordering::Relaxed);
    }

    /// Its place in the order of creation.
    pub(crate) fn nth(&self) -> u32 {
        self.nth.load(Ordering::Relaxed)
    }

    /// As [`OfPair::turn`]. Its chances are not those of the queue pair with this place.
    pub(super) fn turn(&self) -> (u32, u64) {
        (self.nth() | 1 << 31, self.posts.fetch_add(1, Ordering::Relaxed))
    }
}

impl OfPair {
    pub(crate) const fn new() -> Self {
        Self {
            number: AtomicU32::new(0),
            in_use: Mutex::new(()),
            address: AtomicPtr::new(ptr::null_mut()),
            id: AtomicPtr::new(ptr::null_mut()),
            nth: AtomicU32::new(0),
            shared: AtomicU32::new(0),
            status: AtomicU32::new(0),
            is_expected: AtomicBool::new(false),
            has_failed_receive: AtomicBool::new(false),
            turns: [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    /// `shared` is the place of its shared receive queue in the order of creation; zero for none.
    pub(crate) fn start(&self, qp: *mut ffi::ibv_qp, number: u32, shared: u32) {
        self.number.store(number, Ordering::Relaxed);
        self.address.store(qp, Ordering::Relaxed);
        self.nth.store(MADE[0].fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.shared.store(shared, Ordering::Relaxed);
        self.reset();
        self.turns.iter().for_each(|turns| turns.store(0, Ordering::Relaxed));
        self.id.store(ptr::null_mut(), Ordering::Relaxed);
    }

    pub(super) fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    pub(super) fn nth(&self) -> u32 {
        self.nth.load(Ordering::Relaxed)
    }

    /// The place of its shared receive queue in the order of creation; zero for none.
    pub(super) fn shared(&self) -> u32 {
        self.shared.load(Ordering::Relaxed)
    }

    /// Its place in the order of creation, and how often this has happened before.
    pub(super) fn turn(&self, of: Turn) -> (u32, u64) {
        (self.nth(), self.turns[of as usize].fetch_add(1, Ordering::Relaxed))
    }

    /// As [`turn`](Self::turn), which a later call counts.
    pub(super) fn turn_before(&self, of: Turn) -> (u32, u64) {
        (self.nth(), self.turns[of as usize].load(Ordering::Relaxed))
    }

    /// The queue pair has no requests any more.
    pub(crate) fn reset(&self) {
        self.status.store(0, Ordering::Relaxed);
        self.has_failed_receive.store(false, Ordering::Relaxed);
    }

    /// It was made before the schedule, and has no place.
    pub(crate) fn forget(&self) {
        self.reset();
        self.nth.store(0, Ordering::Relaxed);
        self.shared.store(0, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue pair is about to be destroyed: no fault uses it any more after this call.
    pub(crate) fn leave(&self) {
        let _in_use = self.lock();
        self.address.store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// The queue pair was not destroyed.
    pub(crate) fn stay(&self, qp: *mut ffi::ibv_qp) {
        self.address.store(qp, Ordering::Relaxed);
    }

    /// Forgets the identifier, if it is this one: no fault uses it any more after this call.
    pub(crate) fn forget_id(&self, id: *mut ffi::rdma_cm_id) {
        if ptr::eq(self.id.load(Ordering::Relaxed), id) {
            let _in_use = self.lock();
            let _ = self.id.compare_exchange(id, ptr::null_mut(), Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_id(&self, id: *mut ffi::rdma_cm_id) {
        self.id.store(id, Ordering::Relaxed);
    }

    /// The next completion with an error gets this status.
    pub(super) fn arm(&self, status: u32) {
        self.is_expected.store(true, Ordering::Relaxed);
        self.status.store(status, Ordering::Relaxed);
    }

    /// Whether a completion with an error is to get a status in place of its own.
    pub(crate) fn is_armed(&self) -> bool {
        self.status.load(Ordering::Relaxed) != 0
    }

    /// The status that the next completion of a request with an error gets in place of its own.
    pub(crate) fn next_status(&self) -> Option<ffi::ibv_wc_status> {
        let status = self.status.swap(0, Ordering::Relaxed);
        (status != 0).then_some(ffi::ibv_wc_status(status))
    }

    /// Whether receives wait until a request has completed with its status.
    pub(crate) fn expects_failure(&self) -> bool {
        self.is_armed() && self.is_expected.load(Ordering::Relaxed)
    }

    /// Perhaps no request completes with the status; receives do not wait for it.
    pub(crate) fn expect_nothing(&self) {
        self.is_expected.store(false, Ordering::Relaxed);
    }

    /// No request completes with the status.
    pub(crate) fn disarm(&self) {
        self.status.store(0, Ordering::Relaxed);
    }

    /// A receive has failed: later ones are flushed.
    pub(super) fn fail_receive(&self) {
        self.has_failed_receive.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_failed_receive(&self) -> bool {
        self.has_failed_receive.load(Ordering::Relaxed)
    }

    /// Moves the queue pair to the error state, unless it is being destroyed.
    pub(crate) fn break_down(&self) {
        let _in_use = self.lock();
        let qp = self.address.load(Ordering::Relaxed);
        if qp.is_null() {
            return;
        }
        // SAFETY: the queue pair is live, because `leave` waits for the lock. The attributes are plain numbers.
        unsafe {
            let mut attr: ffi::ibv_qp_attr = mem::zeroed();
            attr.qp_state = ffi::ibv_qp_state::IBV_QPS_ERR;
            let mask = ffi::ibv_qp_attr_mask::IBV_QP_STATE.0.cast_signed();
            front::pass(|| ffi::ibv_modify_qp(qp, &raw mut attr, mask));
        }
    }

    pub(super) fn has_id(&self) -> bool {
        !self.id.load(Ordering::Relaxed).is_null()
    }

    /// Disconnects the identifier, unless it is being destroyed.
    pub(super) fn disconnect(&self) {
        let _in_use = self.lock();
        let id = self.id.load(Ordering::Relaxed);
        if !id.is_null() {
            // SAFETY: the identifier is live, because `forget_id` waits for the lock.
            unsafe { front::pass(|| ffi::rdma_disconnect(id)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;

    /// A fault that uses a queue pair holds its destruction up, and one after it does nothing.
    #[test]
    fn destruction_waits_for_a_fault() {
        let pair = OfPair::new();
        let step = AtomicU32::new(0);
        thread::scope(|scope| {
            let in_use = pair.lock();
            scope.spawn(|| {
                step.store(1, Ordering::SeqCst);
                pair.leave();
                step.store(2, Ordering::SeqCst);
            });
            while step.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            for _ in 0..100 {
                thread::yield_now();
                assert_eq!(step.load(Ordering::SeqCst), 1);
            }
            drop(in_use);
        });
        assert_eq!(step.load(Ordering::SeqCst), 2);
        // The verb would dereference the pointer.
        pair.break_down();
    }
}
