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
use super::state::Inner;
use super::stub::{forever, stubs};

/// The size of an `alloc_buf` buffer, whatever was requested.
const BUFFER: usize = 1 << 16;
/// The owner of a buffer, which does not start with a context.
static BUFFERS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// A buffer of the provider.
#[repr(C, align(4096))]
struct BufferBytes([u8; BUFFER]);

/// Creates the handle of a buffer.
///
/// # Safety
///
/// The domain is one of this provider's.
unsafe fn handle(inner: &mut Inner, pd: *mut ffi::ibv_pd) -> *mut ibv_buf {
    let handle = forever::<u64>().cast::<ibv_buf>();
    // SAFETY: guaranteed by the caller.
    let context = unsafe { (*pd).context }.expose_provenance();
    BUFFERS.lock().unwrap_or_else(PoisonError::into_inner).insert(handle.addr(), context);
    inner.made(Kind::Buffer, handle, &[pd.addr()]);
    handle
}

stubs! {
    fn ibv_reg_buf_mr(pd: *mut ffi::ibv_pd, buf: *mut ibv_buf, addr: *mut c_void, length: usize, access: c_int)
        -> *mut ffi::ibv_mr [addr, length, access] |inner|
    {
        register(&mut inner, pd, addr, length, &[buf.addr()])
    }

    fn ibv_alloc_buf(pd: *mut ffi::ibv_pd, size: usize, buf: *mut *mut ibv_buf) -> *mut c_void [size] |inner| {
        *buf = handle(&mut inner, pd);
        forever::<BufferBytes>().cast()
    }

    fn ibv_alloc_user_buf(pd: *mut ffi::ibv_pd, addr: *mut c_void, size: usize, fd: c_int) -> *mut ibv_buf
        [addr, size, fd] |inner|
    {
        handle(&mut inner, pd)
    }
}

macro_rules! frees {
    ($($name:ident: $verb:literal;)*) => { $(
        pub(super) unsafe extern "C" fn $name(buf: *mut ibv_buf) {
            let context = BUFFERS.lock().unwrap_or_else(PoisonError::into_inner).remove(&buf.addr());
            let Some(context) = context else { panic!("a buffer that does not exist was freed") };
            let context = ptr::with_exposed_provenance_mut(context);
            // SAFETY: the context is one of this provider's.
            let mut inner = unsafe { state_of(context) }.note($verb, &[("object", buf.addr() as u64)]);
            if inner.destroy(Kind::Buffer, buf.addr()).is_err() {
                inner.violation("a buffer that a region uses was freed");
            }
        }
    )* };
}
frees! {
    ibv_free_buf: "free_buf";
    ibv_free_user_buf: "free_user_buf";
}
