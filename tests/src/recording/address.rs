//! Address handles.

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::calls::Kind;
use super::device::state_of;
use super::objects::{destroy_object, forever};

pub(super) unsafe extern "C" fn create_ah(pd: *mut ffi::ibv_pd, attr: *mut ffi::ibv_ah_attr) -> *mut ffi::ibv_ah {
    // SAFETY: the domain is one of this provider's, the attributes can be read, and the handle is new.
    unsafe {
        let arguments = [("port_num", (*attr).port_num.into()), ("is_global", (*attr).is_global.into())];
        let (mut inner, failure) = state_of((*pd).context).enter("create_ah", &arguments);
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

pub(super) unsafe extern "C" fn destroy_ah(ah: *mut ffi::ibv_ah) -> c_int {
    // SAFETY: objects are never freed.
    unsafe { destroy_object((*ah).context, "destroy_ah", Kind::AddressHandle, ah.addr()) }
}
