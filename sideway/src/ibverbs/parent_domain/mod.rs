//! Parent domains: a protection domain with an allocator or a thread domain.
//!
//! ```text
//! ParentDomainBuilder ── build ────────────────► Arc<ProtectionDomain>    usable wherever the domain that it was made of is
//!                     ── build_single_threaded ► SingleThreadedDomain     what is made in it stays with one thread
//! ```
//!
//! A parent domain shares the keys of the domain from which it was created: memory regions and address handles of one
//! domain can be used with queue pairs of the other ([`ProtectionDomain::plain`]).

use std::sync::Arc;
use std::{mem, ptr};

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_parent_domain_init_attr, ibv_parent_domain_init_attr_mask as mask};

use super::allocator::{self, AllocatorContext};
pub use super::allocator::{Allocation, AllocationRequest, DomainAllocator};
use super::device_context::DeviceContext;
use super::protection_domain::{DomainHandle, Parent, ProtectionDomain};
use super::thread_domain::{ThreadDomain, ThreadDomainCore};
use crate::error::VerbError;
use crate::ffi::{Handle, check_pointer};

const VERB: &str = "ibv_alloc_parent_domain";

/// Builds parent domains from a protection domain.
#[derive(Debug)]
pub struct ParentDomainBuilder {
    pd: Arc<ProtectionDomain>,
    allocator: Option<Arc<dyn DomainAllocator>>,
}

impl ProtectionDomain {
    /// Creates a builder of parent domains of this domain.
    pub fn create_parent_domain_builder(self: &Arc<Self>) -> ParentDomainBuilder {
        ParentDomainBuilder::new(self)
    }

    /// Whether a [`ParentDomainBuilder`] built this domain.
    pub fn is_parent_domain(&self) -> bool {
        self.handle.parent().is_some()
    }

    /// Leaks a parent domain if an object in it could not be destroyed, because the device may still write to its
    /// allocator's memory.
    pub(crate) fn keep_parent_domain(self: &Arc<Self>) {
        if self.is_parent_domain() {
            mem::forget(Arc::clone(self));
        }
    }

    /// Whether only one thread uses the objects of this domain.
    pub(super) fn has_thread_domain(&self) -> bool {
        self.handle.parent().is_some_and(|parent| parent.has_thread_domain())
    }

    /// Returns the plain domain from which a parent domain was created. For a plain domain, returns the domain itself.
    /// Objects of domains with the same plain domain can be used together.
    pub fn plain(self: &Arc<Self>) -> &Arc<Self> {
        self.handle.parent().map_or(self, |parent| parent.domain())
    }
}

impl ParentDomainBuilder {
    /// Creates a builder for this domain, without an allocator or a thread domain.
    pub fn new(pd: &Arc<ProtectionDomain>) -> Self {
        Self { pd: Arc::clone(pd), allocator: None }
    }

    /// Sets the allocator of the memory for the domain's queues.
    pub fn setup_allocator(&mut self, allocator: Arc<dyn DomainAllocator>) -> &mut Self {
        self.allocator = Some(allocator);
        self
    }

    /// `ibv_alloc_parent_domain(context, attr)` — builds a parent domain without a thread domain. Use the result like
    /// any other protection domain. Create completion queues in it with
    /// [`setup_parent_domain`](crate::ibverbs::completion::CompletionQueueBuilder::setup_parent_domain).
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the driver does not support parent domains, or does not support allocators.
    /// - `ENOMEM`: out of memory.
    ///
    /// # References
    ///
    /// [ibv_alloc_parent_domain(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_parent_domain.3.html)
    #[doc(alias = "ibv_alloc_parent_domain")]
    pub fn build(&self) -> Result<Arc<ProtectionDomain>, VerbError> {
        self.allocate(None)
    }

    /// Builds a domain whose queues use the thread domain.
    pub(super) fn allocate_for(&self, td: &ThreadDomain) -> Result<Arc<ProtectionDomain>, VerbError> {
        if td.device_context().raw() != self.context().raw() {
            return Err(VerbError::invalid(
                VERB,
                "the thread domain belongs to another device context than the domain; allocate both from one",
            ));
        }
        self.allocate(Some(Arc::clone(td.core())))
    }

    pub(super) fn has_allocator(&self) -> bool {
        self.allocator.is_some()
    }

    fn context(&self) -> &Arc<DeviceContext> {
        self.pd.device_context()
    }

    fn allocate(&self, td: Option<Arc<ThreadDomainCore>>) -> Result<Arc<ProtectionDomain>, VerbError> {
        if self.pd.is_parent_domain() {
            return Err(VerbError::invalid(VERB, "the domain is already a parent domain; build from a plain one"));
        }
        let pd_context = self.allocator.clone().map(AllocatorContext::new);
        let mut attr = ibv_parent_domain_init_attr {
            pd: self.pd.raw(),
            td: td.as_ref().map_or(ptr::null_mut(), |td| td.raw()),
            comp_mask: 0,
            alloc: None,
            free: None,
            pd_context: ptr::null_mut(),
        };
        if let Some(pd_context) = &pd_context {
            attr.comp_mask =
                mask::IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS.0 | mask::IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT.0;
            attr.alloc = Some(allocator::allocate);
            attr.free = Some(allocator::free);
            attr.pd_context = pd_context.as_ptr();
        }
        // SAFETY: both domains are live and belong to this context. The allocator stays on the heap until the new
        // domain is freed.
        let pd = unsafe { sys::ibv_alloc_parent_domain(self.context().raw(), &mut attr) };
        let pd = check_pointer(VERB, pd).map_err(|error| self.explain(error))?;
        // SAFETY: the domain was just created and is not shared, and ibv_dealloc_pd frees it.
        let handle = unsafe { Handle::new(pd, sys::ibv_dealloc_pd, "ibv_dealloc_pd") };
        let parent = Parent::new(pd_context, td, Arc::clone(&self.pd));
        let handle = DomainHandle::of_parent_domain(handle, parent);
        Ok(Arc::new(ProtectionDomain { handle, context: Arc::clone(self.context()) }))
    }

    #[cold]
    fn explain(&self, error: VerbError) -> VerbError {
        match error.errno().raw() {
            libc::EOPNOTSUPP | libc::ENOSYS if self.allocator.is_some() => {
                error.with_hint("the driver does not support parent domains, or allocators")
            }
            libc::EOPNOTSUPP | libc::ENOSYS => error.with_hint("the driver does not support parent domains"),
            _ => error,
        }
    }
}
