//! Ownership of a protection domain, plain or parent, with the objects that a parent domain needs.

use std::fmt;
use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys::ibv_pd;

use super::ProtectionDomain;
use crate::error::VerbError;
use crate::ffi::Handle;
use crate::ibverbs::allocator::AllocatorContext;
use crate::ibverbs::thread_domain::ThreadDomainCore;

/// The C object of a [`ProtectionDomain`].
pub(crate) struct DomainHandle {
    pd: NonNull<ibv_pd>,
    /// `None` from the moment when the domain is freed.
    handle: Option<Handle<ibv_pd>>,
    parent: Option<Parent>,
}

/// Objects that must outlive a parent domain. They are leaked if the domain cannot be freed, because the device may
/// still write to the allocator's memory.
pub(crate) struct Parent {
    /// The allocator, whose address the driver has stored.
    _allocator: Option<AllocatorContext>,
    td: Option<Arc<ThreadDomainCore>>,
    pd: Arc<ProtectionDomain>,
}

impl Parent {
    pub(in crate::ibverbs) fn new(
        allocator: Option<AllocatorContext>,
        td: Option<Arc<ThreadDomainCore>>,
        pd: Arc<ProtectionDomain>,
    ) -> Self {
        Self { _allocator: allocator, td, pd }
    }

    pub(in crate::ibverbs) fn has_thread_domain(&self) -> bool {
        self.td.is_some()
    }

    /// Returns the plain domain from which the parent domain was created.
    pub(in crate::ibverbs) fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }
}

impl From<Handle<ibv_pd>> for DomainHandle {
    fn from(handle: Handle<ibv_pd>) -> Self {
        Self::new(handle, None)
    }
}

impl DomainHandle {
    pub(in crate::ibverbs) fn of_parent_domain(handle: Handle<ibv_pd>, parent: Parent) -> Self {
        Self::new(handle, Some(parent))
    }

    fn new(handle: Handle<ibv_pd>, parent: Option<Parent>) -> Self {
        Self { pd: handle.as_non_null(), handle: Some(handle), parent }
    }

    /// Returns the domain, which is live as long as the handle lives.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut ibv_pd {
        self.pd.as_ptr()
    }

    /// Returns the domain for public accessors.
    #[inline]
    pub(crate) fn as_non_null(&self) -> NonNull<ibv_pd> {
        self.pd
    }

    /// Frees the domain.
    pub(crate) fn close(mut self) -> Result<(), VerbError> {
        self.free()
    }

    pub(in crate::ibverbs) fn parent(&self) -> Option<&Parent> {
        self.parent.as_ref()
    }

    fn free(&mut self) -> Result<(), VerbError> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        handle.close().inspect_err(|_| mem::forget(self.parent.take()))
    }
}

// SAFETY: the pointer belongs to the handle, which is `Send` and `Sync`. Only the domain of the parent is accessible,
// and it is `Sync`. The allocator is `Send` and `Sync`.
unsafe impl Send for DomainHandle {}
// SAFETY: the reasons given for `Send` apply.
unsafe impl Sync for DomainHandle {}

impl Drop for DomainHandle {
    fn drop(&mut self) {
        if let Err(error) = self.free() {
            rdma_mummy_sys::log!(warn, "{error}; the protection domain is leaked");
        }
    }
}

impl fmt::Debug for DomainHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.pd, f)
    }
}
