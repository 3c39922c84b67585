//! `ibv_destroy_qp`.

use std::ffi::c_int;
use std::sync::Arc;

use rdma_mummy_sys::ibv_qp;

use super::Pair;
use crate::qp::registry::QpRegistry;
use crate::sys::errno::Errno;
use crate::verbs::failure;
use crate::verbs::object::Object;

/// `ibv_destroy_qp(qp)`: `EBUSY` while it is attached to a multicast group. Waits until its asynchronous events that were taken are
/// acknowledged. A queue pair that others have opened lives on until the last of them destroys it.
///
/// # Safety
///
/// As for C: the queue pair is alive, and not used any more where this succeeds.
pub(crate) unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the caller's promise.
    let (pair, events, handles) = unsafe {
        let object = qp.cast::<Pair>();
        (Arc::clone(Pair::engine(qp)), Arc::clone(&(*object).events), Arc::clone(&(*object).handles))
    };
    if QpRegistry::of_process().is_attached(pair.number()) {
        return failure::code(Errno::BUSY);
    }
    // SAFETY: the caller's promise: no other thread uses it, and so none is in a batch. One that was never completed goes.
    unsafe { *(*qp.cast::<Pair>()).batch.get() = None };
    if handles.remove(&events) {
        pair.close();
    }
    // SAFETY: a queue pair that is closed puts no events, and one that lives on puts them to others; the caller's promise.
    unsafe {
        events.finish();
        drop(Pair::from_c(qp));
    }
    0
}
