//! The device contexts that librdmacm has opened.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_context;

use super::Identifier;
use crate::error::VerbError;
use crate::ffi::{check_pointer, clear_errno};
use crate::ibverbs::device_context::DeviceContext;
use crate::ibverbs::fork;

/// Those that somebody holds, by the address of the C object: events of a device find their objects in one of them.
static LENT: Mutex<BTreeMap<usize, Weak<DeviceContext>>> = Mutex::new(BTreeMap::new());

/// `rdma_get_devices(num_devices)` — opens all RDMA devices that the connection manager serves. Each stays open as long as
/// somebody holds it, or an identifier is on it.
///
/// # Errors
///
/// `ENODEV` where there is none; else the errno of the library, which gives none where one cannot be opened.
///
/// # References
///
/// [rdma_get_devices(3)](https://man7.org/linux/man-pages/man3/rdma_get_devices.3.html)
#[doc(alias = "rdma_get_devices")]
#[doc(alias = "rdma_free_devices")]
pub fn devices() -> Result<Vec<Arc<DeviceContext>>, VerbError> {
    let list = Arc::new(List::get()?);
    // SAFETY: the list keeps its contexts open.
    Ok(list.contexts().map(|context| unsafe { enter(context, || Arc::clone(&list) as _) }).collect())
}

/// The context of an identifier, which may outlive it.
///
/// # Safety
///
/// The library keeps the context open as long as `id` lives.
pub(super) unsafe fn lend(context: NonNull<ibv_context>, id: &Arc<Identifier>) -> Arc<DeviceContext> {
    let lender = || match List::get() {
        Ok(list) if list.contexts().any(|other| other == context) => Arc::new(list) as _,
        // The library has no list where one device of several cannot be opened. The identifier keeps its device open too.
        _ => Arc::clone(id) as _,
    };
    // SAFETY: the library counts who has got the context from it, by list or by identifier.
    unsafe { enter(context, lender) }
}

/// # Safety
///
/// What `lender` gives keeps the context open.
unsafe fn enter(
    context: NonNull<ibv_context>,
    lender: impl FnOnce() -> Arc<dyn std::any::Any + Send + Sync>,
) -> Arc<DeviceContext> {
    let mut lent = LENT.lock().unwrap_or_else(PoisonError::into_inner);
    let address = context.as_ptr().addr();
    if let Some(context) = lent.get(&address).and_then(Weak::upgrade) {
        return context;
    }
    lent.retain(|_, context| context.strong_count() > 0);
    // SAFETY: the caller's promise; nobody holds another of this address.
    let context = Arc::new(unsafe { DeviceContext::lent(context, lender()) });
    lent.insert(address, Arc::downgrade(&context));
    context
}

/// The list that the library gives, whose contexts it keeps open until the list is freed.
#[derive(Debug)]
struct List(NonNull<*mut ibv_context>);

// SAFETY: the list belongs to no thread; it is only read, and freed once by its owner.
unsafe impl Send for List {}
// SAFETY: as for Send; a shared list is only read.
unsafe impl Sync for List {}

impl List {
    fn get() -> Result<Self, VerbError> {
        fork::before_device();
        clear_errno();
        // SAFETY: nothing is asked for but the list.
        let list = unsafe { sys::rdma_get_devices(std::ptr::null_mut()) };
        check_pointer("rdma_get_devices", list).map(Self).map_err(|error| match error.errno().raw() {
            libc::ENODEV => error.with_hint("there is no RDMA device"),
            libc::EOPNOTSUPP => error.with_hint("librdmacm is not there: see EventChannel::new"),
            _ => error,
        })
    }

    fn contexts(&self) -> impl Iterator<Item = NonNull<ibv_context>> {
        // SAFETY: each element up to the null one is there to be read.
        (0..).map_while(|index| NonNull::new(unsafe { *self.0.as_ptr().add(index) }))
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the library made the list, it is freed once, and nobody uses its contexts by it any more.
        unsafe { sys::rdma_free_devices(self.0.as_ptr()) };
    }
}
