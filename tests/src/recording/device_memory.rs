//! Device memory and DMA handles.

use std::ptr;

use libc::{c_int, c_uint, c_void};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::since_v44::{ibv_dmah, ibv_dmah_init_attr};

use super::calls::Kind;
use super::memory::register;
use super::state::Inner;
use super::stub::{endings, forever, stubs};

/// The size of all device memory.
pub(super) const DEVICE_MEMORY: usize = 4096;

/// The C struct of device memory; the bytes follow the struct.
#[repr(C)]
struct Memory {
    dm: ffi::ibv_dm,
    len: usize,
    bytes: [u8; DEVICE_MEMORY],
}

/// New device memory.
///
/// # Safety
///
/// The context is one of this provider's.
pub(super) unsafe fn new_dm(context: *mut ffi::ibv_context, len: usize, handle: u32) -> *mut ffi::ibv_dm {
    let memory = forever::<Memory>();
    // SAFETY: the memory is new.
    unsafe {
        (*memory).len = len;
        (*memory).dm = ffi::ibv_dm {
            context,
            memcpy_to_dm: Some(memcpy_to_dm),
            memcpy_from_dm: Some(memcpy_from_dm),
            comp_mask: ffi::ibv_dm_mask::IBV_DM_MASK_HANDLE.0,
            handle,
        };
    }
    memory.cast()
}

/// The bytes of a copy; without them if it is out of bounds, which is a violation.
///
/// # Safety
///
/// The memory is one of this provider's.
unsafe fn bytes(inner: &mut Inner, dm: *mut ffi::ibv_dm, offset: u64, length: usize) -> Option<*mut u8> {
    let memory = dm.cast::<Memory>();
    // SAFETY: objects are never freed, and the offset is in bounds.
    unsafe {
        if offset as usize + length > (*memory).len.min(DEVICE_MEMORY) {
            inner.violation("a copy exceeded device memory");
            return None;
        }
        Some((&raw mut (*memory).bytes).cast::<u8>().add(offset as usize))
    }
}

stubs! {
    fn reg_dm_mr(pd: *mut ffi::ibv_pd, dm: *mut ffi::ibv_dm, offset: u64, length: usize, access: c_uint)
        -> *mut ffi::ibv_mr [offset, length, access] |inner|
    {
        if (*dm).context != (*pd).context {
            inner.violation("device memory of another context was registered");
        }
        register(&mut inner, pd, ptr::null_mut(), length, &[dm.addr()])
    }

    fn alloc_dm(context: *mut ffi::ibv_context, attr: *mut ffi::ibv_alloc_dm_attr) -> *mut ffi::ibv_dm
        [; @attr: length; log_align = (*attr).log_align_req, mask = (*attr).comp_mask] |inner|
    {
        let dm = new_dm(context, (*attr).length, inner.handle());
        if inner.script.without.contains("memcpy_to_dm") {
            ((*dm).memcpy_to_dm, (*dm).memcpy_from_dm, (*dm).comp_mask) = (None, None, 0);
        }
        inner.output("alloc_dm: handle", &raw mut (*dm).handle);
        inner.made(Kind::DeviceMemory, dm, &[context.addr()]);
        dm
    }

    fn memcpy_to_dm(dm: *mut ffi::ibv_dm, offset: u64, from: *const c_void, length: usize) -> c_int
        [offset, length] |inner|
    {
        let Some(to) = bytes(&mut inner, dm, offset, length) else { return libc::EFAULT };
        to.copy_from(from.cast(), length);
        0
    }

    fn memcpy_from_dm(to: *mut c_void, dm: *mut ffi::ibv_dm, offset: u64, length: usize) -> c_int where dm
        [offset, length] |inner|
    {
        let Some(from) = bytes(&mut inner, dm, offset, length) else { return libc::EFAULT };
        from.copy_to(to.cast(), length);
        0
    }

    fn ibv_dm_export_dmabuf_fd(dm: *mut ffi::ibv_dm) -> c_int [] |_inner| {
        libc::eventfd(77, libc::EFD_CLOEXEC)
    }

    fn ibv_alloc_dmah(context: *mut ffi::ibv_context, attr: *mut ibv_dmah_init_attr) -> *mut ibv_dmah
        [; @attr: cpu_id, ph, tph_mem_type; mask = (*attr).comp_mask] |inner|
    {
        // A DMA handle starts with its context; the rest belongs to the library.
        let dmah = forever::<[*mut ffi::ibv_context; 4]>();
        (*dmah)[0] = context;
        inner.made(Kind::DmaHandle, dmah, &[context.addr()]);
        dmah.cast()
    }
}

endings! {
    free_dm(ffi::ibv_dm);
    ibv_dealloc_dmah(ibv_dmah);
}
