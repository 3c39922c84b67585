//! `struct ibv_td`: the promise that objects are used by one thread.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_td, ibv_td_init_attr};

use crate::error::{Errno, VerbError};
use crate::ffi::{Handle, check_pointer};
use crate::ibverbs::device_context::DeviceContext;

/// `struct ibv_td` — a thread domain: what is made in it is used by one thread at a time, so that the driver may leave locks
/// out, and may let the queue pairs share a doorbell.
///
/// It stays with the thread that made it, and so does all that is made in it: see
/// [`ParentDomainBuilder::build_single_threaded`](crate::ibverbs::parent_domain::ParentDomainBuilder::build_single_threaded).
#[doc(alias = "ibv_td")]
#[derive(Debug)]
pub struct ThreadDomain {
    core: Arc<ThreadDomainCore>,
    /// Neither `Send` nor `Sync`.
    thread: PhantomData<*mut ()>,
}

/// The C object with what must outlive it. Ending it is not bound to a thread: the driver orders that by its own locks.
#[derive(Debug)]
pub(crate) struct ThreadDomainCore {
    // Dropped first: the context must outlive it.
    handle: Handle<ibv_td>,
    context: Arc<DeviceContext>,
}

impl DeviceContext {
    /// `ibv_alloc_td(context, init_attr)` — makes a thread domain.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the driver has no thread domains.
    /// - `ENOMEM`: the device has no doorbell left to give away.
    ///
    /// # References
    ///
    /// [ibv_alloc_td(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_td.3.html)
    #[doc(alias = "ibv_alloc_td")]
    pub fn alloc_td(self: &Arc<Self>) -> Result<ThreadDomain, VerbError> {
        let mut attr = ibv_td_init_attr { comp_mask: 0 };
        // SAFETY: the context is open as long as `self`, and the attributes are complete for a comp_mask of 0.
        let td = check_pointer("ibv_alloc_td", unsafe { sys::ibv_alloc_td(self.raw(), &mut attr) }).map_err(explain)?;
        // SAFETY: just made, ours alone, and ibv_dealloc_td is its verb.
        let handle = unsafe { Handle::new(td, dealloc_td, "ibv_dealloc_td") };
        let core = Arc::new(ThreadDomainCore { handle, context: Arc::clone(self) });
        Ok(ThreadDomain { core, thread: PhantomData })
    }
}

impl ThreadDomain {
    /// `ibv_dealloc_td(td)` — frees the domain and reports, where dropping only logs.
    ///
    /// # Errors
    ///
    /// `EBUSY` where something was made in the domain, which then goes with the last of it; else the driver's errno, and the
    /// domain is leaked.
    #[doc(alias = "ibv_dealloc_td")]
    pub fn close(self) -> Result<(), VerbError> {
        match Arc::into_inner(self.core) {
            Some(core) => core.handle.close(),
            None => Err(VerbError::new("ibv_dealloc_td", Errno::EBUSY)
                .with_hint("something made in the thread domain is left: it goes with the last of it")),
        }
    }

    /// The device that the domain is of.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.core.context
    }

    /// The C object.
    ///
    /// # Safety
    ///
    /// It is used only while `self` lives, and not freed; what is made in it is used by this thread alone.
    pub unsafe fn td(&self) -> NonNull<ibv_td> {
        self.core.handle.as_non_null()
    }

    pub(super) fn core(&self) -> &Arc<ThreadDomainCore> {
        &self.core
    }
}

impl ThreadDomainCore {
    pub(super) fn raw(&self) -> *mut ibv_td {
        self.handle.as_ptr()
    }
}

/// The header's function, as one that has an address.
unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> libc::c_int {
    // SAFETY: the caller's promise.
    unsafe { sys::ibv_dealloc_td(td) }
}

#[cold]
fn explain(error: VerbError) -> VerbError {
    match error.errno().raw() {
        libc::EOPNOTSUPP | libc::ENOSYS => error.with_hint("the driver has no thread domains"),
        _ => error,
    }
}
