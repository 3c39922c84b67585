//! Buffers of the provider.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use libc::{c_int, c_void};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::since_v44::ibv_buf;

use super::calls::Kind;
use super::device::state_of;
use super::memory::register;
use super::objects::forever;

/// The size of an `alloc_buf` buffer, whatever was requested.
const BUFFER: usize = 1 << 16;
/// The owner of a buffer, which does not start with a context.
static BUFFERS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// A buffer of the provider.
#[repr(C, align(4096))]
struct BufferBytes([u8; BUFFER]);

pub(super) unsafe extern "C" fn reg_buf_mr(
    pd: *mut ffi::ibv_pd,
    buf: *mut ibv_buf,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ffi::ibv_mr {
    let arguments = [("addr", addr.addr() as u64), ("length", length as u64), ("access", access as u64)];
    // SAFETY: guaranteed by the caller.
    unsafe { register("reg_buf_mr", &arguments, pd, addr, length, &[buf.addr()]) }
}

pub(super) unsafe extern "C" fn alloc_buf(pd: *mut ffi::ibv_pd, size: usize, buf: *mut *mut ibv_buf) -> *mut c_void {
    // SAFETY: the domain is one of this provider's, and the place for the handle can be written.
    unsafe {
        let (mut inner, failure) = state_of((*pd).context).enter("alloc_buf", &[("size", size as u64)]);
        if let Some(failure) = failure {
            return failure.null();
        }
        let handle = forever::<u64>().cast::<ibv_buf>();
        BUFFERS.lock().unwrap_or_else(PoisonError::into_inner).insert(handle.addr(), (*pd).context.expose_provenance());
        inner.made(Kind::Buffer, handle, &[pd.addr()]);
        *buf = handle;
        forever::<BufferBytes>().cast()
    }
}

pub(super) unsafe extern "C" fn alloc_user_buf(
    pd: *mut ffi::ibv_pd,
    addr: *mut c_void,
    size: usize,
    dmabuf_fd: c_int,
) -> *mut ibv_buf {
    let arguments = [("addr", addr.addr() as u64), ("size", size as u64), ("fd", dmabuf_fd as u64)];
    // SAFETY: the domain is one of this provider's.
    unsafe {
        let (mut inner, failure) = state_of((*pd).context).enter("alloc_user_buf", &arguments);
        if let Some(failure) = failure {
            return failure.null();
        }
        let handle = forever::<u64>().cast::<ibv_buf>();
        BUFFERS.lock().unwrap_or_else(PoisonError::into_inner).insert(handle.addr(), (*pd).context.expose_provenance());
        inner.made(Kind::Buffer, handle, &[pd.addr()]);
        handle
    }
}

pub(super) unsafe extern "C" fn free_buf(buf: *mut ibv_buf) {
    // SAFETY: guaranteed by the caller.
    unsafe { free("free_buf", buf) };
}

pub(super) unsafe extern "C" fn free_user_buf(buf: *mut ibv_buf) {
    // SAFETY: guaranteed by the caller.
    unsafe { free("free_user_buf", buf) };
}

/// # Safety
///
/// The buffer is one of this provider's.
unsafe fn free(verb: &'static str, buf: *mut ibv_buf) {
    let context = BUFFERS.lock().unwrap_or_else(PoisonError::into_inner).remove(&buf.addr());
    let Some(context) = context else { panic!("a buffer that does not exist was freed") };
    let context = ptr::with_exposed_provenance_mut(context);
    // SAFETY: the context is one of this provider's.
    let mut inner = unsafe { state_of(context) }.note(verb, &[("object", buf.addr() as u64)]);
    if inner.destroy(Kind::Buffer, buf.addr()).is_err() {
        inner.violation("a buffer that a region uses was freed");
    }
}
