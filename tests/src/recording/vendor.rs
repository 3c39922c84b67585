//! What all vendors' libraries need: parts of objects, and requests that name an address handle.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use rdma_mummy_sys as ffi;

use super::device::state_of;

/// A vendor's part of each object, and the object of each part. The parts are allocated separately, because their
/// layout is opaque.
static PARTS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// Gives an object a part.
pub(super) fn join<T, U>(object: *mut T, part: *mut U) {
    let mut parts = PARTS.lock().unwrap_or_else(PoisonError::into_inner);
    parts.insert(object.expose_provenance(), part.expose_provenance());
    parts.insert(part.addr(), object.addr());
}

/// Maps between an object and its part; null if there is none.
pub(super) fn counterpart<T, U>(object: *mut T) -> *mut U {
    let parts = PARTS.lock().unwrap_or_else(PoisonError::into_inner);
    parts.get(&object.addr()).map_or(ptr::null_mut(), |&other| ptr::with_exposed_provenance_mut(other))
}

/// Logs the address of the open request.
///
/// # Safety
///
/// `qp` is a queue pair of this provider, and `ah` can be read.
pub(super) unsafe fn address(
    qp: *mut ffi::ibv_qp,
    ah: *mut ffi::ibv_ah,
    verb: &'static str,
    arguments: &[(&'static str, u64)],
) {
    // SAFETY: objects are never freed.
    unsafe {
        let mut inner = state_of((*qp).context).note(verb, arguments);
        if !inner.exists(qp.addr(), verb) {
            return;
        }
        let begun = inner.pairs.get(&qp.addr()).is_some_and(|pair| pair.batch.is_some() && pair.without_data);
        if !begun {
            inner.violation(format!("{verb} for a request that was never started"));
        }
        if (*ah).context != (*qp).context {
            inner.violation(format!("{verb} with an address handle of another context"));
        }
    }
}
