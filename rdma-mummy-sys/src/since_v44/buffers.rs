//! Buffers, which have no device: those of the providers in this process are recorded.

use core::ffi::{c_int, c_void};

use super::types::ibv_buf;
use crate::bindings::verbs::ibv_pd;
use crate::load::failure;
use crate::load::front::front;
use crate::load::ibverbs::IbverbsTable;
use crate::load::objects::{forget, remember};
use crate::load::route::{Owner, Routed, find};

/// `ibv_alloc_buf`: see `ibv_alloc_buf(3)`.
///
/// # Safety
///
/// `pd` is live for as long as the buffer is, and `buf` can be written.
pub unsafe extern "C" fn ibv_alloc_buf(pd: *mut ibv_pd, size: usize, buf: *mut *mut ibv_buf) -> *mut c_void {
    front!(IbverbsTable, since_v44.ibv_alloc_buf(pd, size, buf));
    // SAFETY: by contract the protection domain is null or live.
    let owner = unsafe { pd.owner() };
    match find::<IbverbsTable, _>(owner, |table| table.since_v44.ibv_alloc_buf) {
        Ok(_) if buf.is_null() => failure::null(libc::EINVAL),
        Ok(allocate) => {
            // SAFETY: the function comes from the domain's provider, and the caller upholds its contract.
            let address = unsafe { allocate(pd, size, buf) };
            if !address.is_null() {
                // SAFETY: the call succeeded, so `buf` holds a handle.
                remember(unsafe { *buf }, owner);
            }
            address
        }
        Err(code) => failure::null(code),
    }
}

/// `ibv_alloc_user_buf`: see `ibv_alloc_user_buf(3)`.
///
/// # Safety
///
/// `pd` and the memory, or the DMA-BUF, are live for as long as the buffer is.
pub unsafe extern "C" fn ibv_alloc_user_buf(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    size: usize,
    dmabuf_fd: c_int,
) -> *mut ibv_buf {
    front!(IbverbsTable, since_v44.ibv_alloc_user_buf(pd, addr, size, dmabuf_fd));
    // SAFETY: by contract the protection domain is null or live.
    let owner = unsafe { pd.owner() };
    match find::<IbverbsTable, _>(owner, |table| table.since_v44.ibv_alloc_user_buf) {
        Ok(allocate) => {
            // SAFETY: the function comes from the domain's provider, and the caller upholds its contract.
            let buf = unsafe { allocate(pd, addr, size, dmabuf_fd) };
            remember(buf, owner);
            buf
        }
        Err(code) => failure::null(code),
    }
}

/// `ibv_free_buf`: see `ibv_alloc_buf(3)`.
///
/// # Safety
///
/// `buf` came from `ibv_alloc_buf`, has no memory regions left, and is not used afterwards.
pub unsafe extern "C" fn ibv_free_buf(buf: *mut ibv_buf) {
    front!(IbverbsTable, since_v44.ibv_free_buf(buf));
    // SAFETY: the caller upholds the contract.
    unsafe { free(buf, |table| table.since_v44.ibv_free_buf) };
}

/// `ibv_free_user_buf`: see `ibv_alloc_user_buf(3)`.
///
/// # Safety
///
/// `buf` came from `ibv_alloc_user_buf`, has no memory regions left, and is not used afterwards.
pub unsafe extern "C" fn ibv_free_user_buf(buf: *mut ibv_buf) {
    front!(IbverbsTable, since_v44.ibv_free_user_buf(buf));
    // SAFETY: the caller upholds the contract.
    unsafe { free(buf, |table| table.since_v44.ibv_free_user_buf) };
}

type Free = unsafe extern "C" fn(*mut ibv_buf);

/// # Safety
///
/// `buf` came from the function that matches the one picked, and is not used afterwards.
unsafe fn free(buf: *mut ibv_buf, pick: impl FnOnce(&'static IbverbsTable) -> Option<Free>) {
    // SAFETY: the buffer is not dereferenced.
    let owner: Owner = unsafe { buf.owner() };
    match find(owner, pick) {
        Ok(free) => {
            forget(buf);
            // SAFETY: the function comes from the buffer's provider, and the caller does not use the buffer again.
            unsafe { free(buf) };
        }
        Err(code) => failure::nothing(code),
    }
}
