//! `struct ibv_td`: a thread domain, whose objects are used by only one thread.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_td, ibv_td_init_attr};

use crate::error::{Errno, VerbError};
use crate::ffi::{Handle, check_pointer};
use crate::ibverbs::device_context::DeviceContext;

/// `struct ibv_td` — a thread domain. Only one thread at a time uses its objects. So the driver may omit locks, and may
/// let the domain's queue pairs share a doorbell.
///
/// The domain and all its objects stay on the thread that created the domain; see
/// [`ParentDomainBuilder::build_single_threaded`](crate::ibverbs::parent_domain::ParentDomainBuilder::build_single_threaded).
#[doc(alias = "ibv_td")]
#[derive(Debug)]
pub struct ThreadDomain {
    core: Arc<ThreadDomainCore>,
    /// Neither `Send` nor `Sync`.
    thread: PhantomData<*mut ()>,
}

/// The C object with the objects that must outlive it. Any thread may free it, because the locks of the driver protect
/// that operation.
#[derive(Debug)]
pub(crate) struct ThreadDomainCore {
    // This is the first field, so it is dropped first, because the context must outlive it.
    handle: Handle<ibv_td>,
    context: Arc<DeviceContext>,
}

impl DeviceContext {
    /// `ibv_alloc_td(context, init_attr)` — creates a thread domain.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the driver does not support thread domains.
    /// - `ENOMEM`: the device has no free doorbell.
    ///
    /// # References
    ///
    /// [ibv_alloc_td(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_td.3.html)
    #[doc(alias = "ibv_alloc_td")]
    pub fn alloc_td(self: &Arc<Self>) -> Result<ThreadDomain, VerbError> {
        let mut attr = ibv_td_init_attr { comp_mask: 0 };
        // SAFETY: the context is open as long as `self` lives, and the attributes are initialised for a comp_mask of 0.
        let td = check_pointer("ibv_alloc_td", unsafe { sys::ibv_alloc_td(self.raw(), &mut attr) }).map_err(explain)?;
        // SAFETY: the domain was just created and is not shared, and ibv_dealloc_td frees it.
        let handle = unsafe { Handle::new(td, dealloc_td, "ibv_dealloc_td") };
        let core = Arc::new(ThreadDomainCore { handle, context: Arc::clone(self) });
        Ok(ThreadDomain { core, thread: PhantomData })
    }
}

impl ThreadDomain {
    /// `ibv_dealloc_td(td)` — frees the domain. This method returns an error of the verb, whereas drop only logs it.
    ///
    /// # Errors
    ///
    /// Returns `EBUSY` if objects of the domain still exist. The domain is then freed when the last of them is dropped.
    /// Otherwise returns the driver's errno, and the domain is leaked.
    #[doc(alias = "ibv_dealloc_td")]
    pub fn close(self) -> Result<(), VerbError> {
        match Arc::into_inner(self.core) {
            Some(core) => core.handle.close(),
            None => Err(VerbError::new("ibv_dealloc_td", Errno::EBUSY)
                .with_hint("objects of the thread domain exist; the last of them frees it")),
        }
    }

    /// Returns the domain's device.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.core.context
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// Use the object only while `self` lives, and do not free it. Only this thread may use the objects of the domain.
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

/// The inline function of the C header, as a function that has an address.
unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> libc::c_int {
    // SAFETY: the caller upholds the contract of this function.
    unsafe { sys::ibv_dealloc_td(td) }
}

#[cold]
fn explain(error: VerbError) -> VerbError {
    match error.errno().raw() {
        libc::EOPNOTSUPP | libc::ENOSYS => error.with_hint(
            "the driver does not support thread domains; use \
            SingleThreadedDomain::new",
        ),
        _ => error,
    }
}
