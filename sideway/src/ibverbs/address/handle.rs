//! `struct ibv_ah`.

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_ah;

use super::AddressHandleAttribute;
use crate::error::VerbError;
use crate::ffi::{Handle, check_pointer};
use crate::ibverbs::protection_domain::ProtectionDomain;

/// An address handle: the way to a peer, as datagrams name it.
#[derive(Debug)]
pub struct AddressHandle {
    handle: Handle<ibv_ah>,
    pd: Arc<ProtectionDomain>,
}

impl ProtectionDomain {
    /// `ibv_create_ah(pd, attr)` — makes an address handle.
    ///
    /// # Errors
    ///
    /// The driver's errno.
    pub fn create_ah(self: &Arc<Self>, way: &AddressHandleAttribute) -> Result<Arc<AddressHandle>, VerbError> {
        let mut attr = *way.as_raw();
        // SAFETY: the domain is live.
        let ah = check_pointer("ibv_create_ah", unsafe { sys::ibv_create_ah(self.raw(), &mut attr) })?;
        // SAFETY: just made, ours alone.
        let handle = unsafe { Handle::new(ah, sys::ibv_destroy_ah, "ibv_destroy_ah") };
        Ok(Arc::new(AddressHandle { handle, pd: Arc::clone(self) }))
    }
}

impl AddressHandle {
    /// The domain that the handle is of.
    pub fn protection_domain(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// The C object.
    ///
    /// # Safety
    ///
    /// It is used only while `self` lives, and not destroyed.
    pub unsafe fn ah(&self) -> NonNull<ibv_ah> {
        self.handle.as_non_null()
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut ibv_ah {
        self.handle.as_ptr()
    }
}
