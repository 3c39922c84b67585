//! Imports, and calls without an object.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ptr;

use libc::{c_int, c_void};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::load::ibverbs::IbverbsTable;

use super::calls::Kind;
use super::device::{self, state_of};
use super::device_memory::{DEVICE_MEMORY, new_dm};
use super::objects::forever;

thread_local! {
    /// Calls without an object, which belong to no device: name, first argument and second argument.
    static LOOSE: RefCell<Vec<(&'static str, usize, usize)>> = const { RefCell::new(Vec::new()) };
    /// The results of the next calls without an object.
    static ANSWERS: RefCell<BTreeMap<&'static str, c_int>> = const { RefCell::new(BTreeMap::new()) };
}

/// The calls of this thread without an object since the last query: name, first and second argument.
pub fn loose_calls() -> Vec<(&'static str, usize, usize)> {
    LOOSE.take()
}

/// Sets the result of `verb`, which has no object, for later calls in this thread.
pub fn answer(verb: &'static str, value: c_int) {
    ANSWERS.with_borrow_mut(|answers| answers.insert(verb, value));
}

fn loose(verb: &'static str, first: usize, second: usize) -> c_int {
    LOOSE.with_borrow_mut(|calls| calls.push((verb, first, second)));
    ANSWERS.with_borrow(|answers| answers.get(verb).copied().unwrap_or(0))
}

/// Calls without an object go to the library of the system.
pub(super) fn system_table() -> IbverbsTable {
    IbverbsTable {
        ibv_import_device: Some(import_device),
        ibv_fork_init: Some(fork_init),
        ibv_is_fork_initialized: Some(is_fork_initialized),
        ibv_dontfork_range: Some(dontfork_range),
        ibv_dofork_range: Some(dofork_range),
        ..Default::default()
    }
}

unsafe extern "C" fn import_device(cmd_fd: c_int) -> *mut ffi::ibv_context {
    if loose("import_device", cmd_fd as usize, 0) != 0 {
        super::failure::set_errno(ANSWERS.with_borrow(|answers| answers["import_device"]));
        return ptr::null_mut();
    }
    let context = device::open_last();
    if !context.is_null() {
        // SAFETY: the context is new.
        unsafe { (*context).cmd_fd = cmd_fd };
    }
    context
}

unsafe extern "C" fn fork_init() -> c_int {
    loose("fork_init", 0, 0)
}

unsafe extern "C" fn is_fork_initialized() -> ffi::ibv_fork_status {
    ffi::ibv_fork_status(loose("is_fork_initialized", 0, 0) as u32)
}

unsafe extern "C" fn dontfork_range(base: *mut c_void, size: usize) -> c_int {
    loose("dontfork_range", base.addr(), size)
}

unsafe extern "C" fn dofork_range(base: *mut c_void, size: usize) -> c_int {
    loose("dofork_range", base.addr(), size)
}

/// Creates a second object for an existing one, for any handle.
///
/// # Safety
///
/// The context is one of this provider's.
unsafe fn import<T>(
    verb: &'static str,
    context: *mut ffi::ibv_context,
    handle: u32,
    parent: usize,
    make: impl FnOnce() -> *mut T,
) -> *mut T {
    // SAFETY: guaranteed by the caller.
    let (mut inner, failure) = unsafe { state_of(context) }.enter(verb, &[("handle", handle.into())]);
    if let Some(failure) = failure {
        return failure.null();
    }
    let object = make();
    inner.made(Kind::Import, object, &[parent]);
    object
}

/// # Safety
///
/// The context is one of this provider's.
unsafe fn unimport(context: *mut ffi::ibv_context, verb: &'static str, object: usize) {
    // SAFETY: guaranteed by the caller.
    let mut inner = unsafe { state_of(context) }.note(verb, &[("object", object as u64)]);
    if inner.destroy(Kind::Import, object).is_err() {
        inner.violation("an import that is in use or does not exist was released");
    }
}

pub(super) unsafe extern "C" fn import_pd(context: *mut ffi::ibv_context, handle: u32) -> *mut ffi::ibv_pd {
    // SAFETY: the context is one of this provider's, and the domain is new.
    unsafe {
        import("import_pd", context, handle, context.addr(), || {
            let pd = forever::<ffi::ibv_pd>();
            ((*pd).context, (*pd).handle) = (context, handle);
            pd
        })
    }
}

pub(super) unsafe extern "C" fn unimport_pd(pd: *mut ffi::ibv_pd) {
    // SAFETY: objects are never freed.
    unsafe { unimport((*pd).context, "unimport_pd", pd.addr()) }
}

pub(super) unsafe extern "C" fn import_mr(pd: *mut ffi::ibv_pd, handle: u32) -> *mut ffi::ibv_mr {
    // SAFETY: the domain is one of this provider's, and the region is new.
    unsafe {
        import("import_mr", (*pd).context, handle, pd.addr(), || {
            let mr = forever::<ffi::ibv_mr>();
            ((*mr).context, (*mr).pd, (*mr).handle) = ((*pd).context, pd, handle);
            ((*mr).length, (*mr).lkey, (*mr).rkey) = (64, 71, 72);
            mr
        })
    }
}

pub(super) unsafe extern "C" fn unimport_mr(mr: *mut ffi::ibv_mr) {
    // SAFETY: objects are never freed.
    unsafe { unimport((*mr).context, "unimport_mr", mr.addr()) }
}

pub(super) unsafe extern "C" fn import_dm(context: *mut ffi::ibv_context, handle: u32) -> *mut ffi::ibv_dm {
    // SAFETY: the context is one of this provider's.
    unsafe { import("import_dm", context, handle, context.addr(), || new_dm(context, DEVICE_MEMORY, handle)) }
}

pub(super) unsafe extern "C" fn unimport_dm(dm: *mut ffi::ibv_dm) {
    // SAFETY: objects are never freed.
    unsafe { unimport((*dm).context, "unimport_dm", dm.addr()) }
}
