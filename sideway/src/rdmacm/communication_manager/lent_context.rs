//! The device contexts that librdmacm opened.

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

/// The contexts that are in use, by the address of their C object. Asynchronous events find their objects through these
/// contexts.
static LENT: Mutex<BTreeMap<usize, Weak<DeviceContext>>> = Mutex::new(BTreeMap::new());

/// `rdma_get_devices(num_devices)` — opens all RDMA devices that the connection manager supports. Each device stays
/// open while it has an owner or an identifier.
///
/// # Errors
///
/// Returns `ENODEV` if there is no device; otherwise the errno of the library. If the library cannot open one of the
/// devices, it returns none of them.
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

/// Returns the context of an identifier. The context may outlive the identifier.
///
/// # Safety
///
/// The library keeps the context open as long as `id` lives.
pub(super) unsafe fn lend(context: NonNull<ibv_context>, id: &Arc<Identifier>) -> Arc<DeviceContext> {
    let lender = || match List::get() {
        Ok(list) if list.contexts().any(|other| other == context) => Arc::new(list) as _,
        // If the library cannot open one of several devices, it returns no list. In that case, the identifier keeps its
        // device open.
        _ => Arc::clone(id) as _,
    };
    // SAFETY: the library counts the references of lists and identifiers to its context.
    unsafe { enter(context, lender) }
}

/// # Safety
///
/// The result of `lender` keeps the context open.
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
    // SAFETY: this follows from the contract of this function. No other object for this address exists.
    let context = Arc::new(unsafe { DeviceContext::lent(context, lender()) });
    lent.insert(address, Arc::downgrade(&context));
    context
}

/// The library's list, which keeps its contexts open until it is freed.
#[derive(Debug)]
struct List(NonNull<*mut ibv_context>);

// SAFETY: the list is not bound to a thread; it is only read, and its owner frees it once.
unsafe impl Send for List {}
// SAFETY: as for Send; a shared reference to the list can only read it.
unsafe impl Sync for List {}

impl List {
    fn get() -> Result<Self, VerbError> {
        fork::before_device();
        clear_errno();
        // SAFETY: the pointer to the count may be null.
        let list = unsafe { sys::rdma_get_devices(std::ptr::null_mut()) };
        check_pointer("rdma_get_devices", list).map(Self).map_err(|error| match error.errno().raw() {
            libc::ENODEV => error.with_hint("there is no RDMA device"),
            libc::EOPNOTSUPP => error.with_hint("librdmacm is not loaded; EventChannel::new reports why"),
            _ => error,
        })
    }

    fn contexts(&self) -> impl Iterator<Item = NonNull<ibv_context>> {
        // SAFETY: all elements up to the null pointer are readable.
        (0..).map_while(|index| NonNull::new(unsafe { *self.0.as_ptr().add(index) }))
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the library created the list, which is freed once. The contexts are not used through the list any
        // more.
        unsafe { sys::rdma_free_devices(self.0.as_ptr()) };
    }
}
