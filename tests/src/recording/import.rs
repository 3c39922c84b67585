//! Imports, and calls without an object.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ptr;

use libc::{c_int, c_void};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::load::ibverbs::IbverbsTable;

use super::calls::Kind;
use super::device;
use super::device_memory::{DEVICE_MEMORY, new_dm};
use super::state::Inner;
use super::stub::{forever, stubs};

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

stubs! {
    fn ibv_import_pd(context: *mut ffi::ibv_context, handle: u32) -> *mut ffi::ibv_pd [handle] |inner| {
        let pd = forever::<ffi::ibv_pd>();
        ((*pd).context, (*pd).handle) = (context, handle);
        inner.made(Kind::Import, pd, &[context.addr()]);
        pd
    }

    fn ibv_import_mr(pd: *mut ffi::ibv_pd, handle: u32) -> *mut ffi::ibv_mr [handle] |inner| {
        let mr = forever::<ffi::ibv_mr>();
        ((*mr).context, (*mr).pd, (*mr).handle) = ((*pd).context, pd, handle);
        ((*mr).length, (*mr).lkey, (*mr).rkey) = (64, 71, 72);
        inner.made(Kind::Import, mr, &[pd.addr()]);
        mr
    }

    fn ibv_import_dm(context: *mut ffi::ibv_context, handle: u32) -> *mut ffi::ibv_dm [handle] |inner| {
        let dm = new_dm(context, DEVICE_MEMORY, handle);
        inner.made(Kind::Import, dm, &[context.addr()]);
        dm
    }

    fn ibv_unimport_pd(pd: *mut ffi::ibv_pd) -> () [; object = pd] |inner| {
        inner.unimport(pd.addr());
    }

    fn ibv_unimport_mr(mr: *mut ffi::ibv_mr) -> () [; object = mr] |inner| {
        inner.unimport(mr.addr());
    }

    fn ibv_unimport_dm(dm: *mut ffi::ibv_dm) -> () [; object = dm] |inner| {
        inner.unimport(dm.addr());
    }
}

impl Inner {
    fn unimport(&mut self, object: usize) {
        if self.destroy(Kind::Import, object).is_err() {
            self.violation("an import that is in use or does not exist was released");
        }
    }
}
