//! Owning a protection domain, plain or parent, with what a parent domain needs until it is gone.

use std::fmt;
use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys::ibv_pd;

use super::allocator::AllocatorContext;
use crate::error::VerbError;
use crate::ffi::Handle;
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::thread_domain::ThreadDomainCore;

/// The C object of a [`ProtectionDomain`].
pub(crate) struct DomainHandle {
    pd: NonNull<ibv_pd>,
    /// Taken by who frees the domain.
    handle: Option<Handle<ibv_pd>>,
    parent: Option<Parent>,
}

/// What a parent domain was made of. It outlives the domain; where that cannot be freed, it is leaked with it, since the
/// device may still write to memory of the allocator.
pub(crate) struct Parent {
    /// The driver has its address.
    _allocator: Option<AllocatorContext>,
    td: Option<Arc<ThreadDomainCore>>,
    pd: Arc<ProtectionDomain>,
}

impl Parent {
    pub(super) fn new(
        allocator: Option<AllocatorContext>,
        td: Option<Arc<ThreadDomainCore>>,
        pd: Arc<ProtectionDomain>,
    ) -> Self {
        Self { _allocator: allocator, td, pd }
    }

    pub(super) fn has_thread_domain(&self) -> bool {
        self.td.is_some()
    }

    /// The domain that it was made of.
    pub(super) fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }
}

impl From<Handle<ibv_pd>> for DomainHandle {
    fn from(handle: Handle<ibv_pd>) -> Self {
        Self::new(handle, None)
    }
}

impl DomainHandle {
    pub(super) fn of_parent_domain(handle: Handle<ibv_pd>, parent: Parent) -> Self {
        Self::new(handle, Some(parent))
    }

    fn new(handle: Handle<ibv_pd>, parent: Option<Parent>) -> Self {
        Self { pd: handle.as_non_null(), handle: Some(handle), parent }
    }

    /// The domain, live as long as the handle.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut ibv_pd {
        self.pd.as_ptr()
    }

    /// The same for public accessors.
    #[inline]
    pub(crate) fn as_non_null(&self) -> NonNull<ibv_pd> {
        self.pd
    }

    /// Frees the domain and reports.
    pub(crate) fn close(mut self) -> Result<(), VerbError> {
        self.free()
    }

    pub(super) fn parent(&self) -> Option<&Parent> {
        self.parent.as_ref()
    }

    fn free(&mut self) -> Result<(), VerbError> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        handle.close().inspect_err(|_| mem::forget(self.parent.take()))
    }
}

// SAFETY: the pointer is that of the handle, which may move and be shared; of the parent nothing but the domain is given
// out, which may be shared, and the allocator is `Send` and `Sync`.
unsafe impl Send for DomainHandle {}
// SAFETY: as for Send.
unsafe impl Sync for DomainHandle {}

impl Drop for DomainHandle {
    fn drop(&mut self) {
        if let Err(error) = self.free() {
            log::warn!("{error}; the protection domain is leaked");
        }
    }
}

impl fmt::Debug for DomainHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.pd, f)
    }
}
