//! The parts of the device that all vendors' libraries need: address handles, and requests that name one.

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::load::ibverbs::IbverbsTable;

use super::calls::Kind;
use super::device::state_of;
use super::objects::{destroy_object, forever};

/// Adds address handles.
pub(super) fn with_address_handles(table: IbverbsTable) -> IbverbsTable {
    IbverbsTable { ibv_create_ah: Some(create_ah), ibv_destroy_ah: Some(destroy_ah), ..table }
}

unsafe extern "C" fn create_ah(pd: *mut ffi::ibv_pd, _attr: *mut ffi::ibv_ah_attr) -> *mut ffi::ibv_ah {
    // SAFETY: the domain is one of this provider's, and the handle is new.
    unsafe {
        let (mut inner, failure) = state_of((*pd).context).enter("create_ah", &[]);
        if let Some(failure) = failure {
            return failure.null();
        }
        let ah = forever::<ffi::ibv_ah>();
        (*ah).context = (*pd).context;
        (*ah).pd = pd;
        (*ah).handle = inner.handle();
        inner.made(Kind::AddressHandle, ah, &[pd.addr()]);
        ah
    }
}

unsafe extern "C" fn destroy_ah(ah: *mut ffi::ibv_ah) -> c_int {
    // SAFETY: objects are never freed.
    unsafe { destroy_object((*ah).context, "destroy_ah", Kind::AddressHandle, ah.addr()) }
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
        if !inner.is_live(Kind::QueuePair, qp.addr(), verb) {
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
