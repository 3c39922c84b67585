//! Device memory and DMA handles.

use std::ptr;

use libc::{c_int, c_uint, c_void};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::since_v44::{ibv_dmah, ibv_dmah_init_attr};

use super::calls::Kind;
use super::device::state_of;
use super::memory::register;
use super::objects::{destroy_object, forever};

/// The size of all device memory.
pub(super) const DEVICE_MEMORY: usize = 4096;

/// The C struct of device memory; the bytes follow the struct.
#[repr(C)]
struct Memory {
    dm: ffi::ibv_dm,
    len: usize,
    bytes: [u8; DEVICE_MEMORY],
}

pub(super) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ffi::ibv_pd,
    dm: *mut ffi::ibv_dm,
    offset: u64,
    length: usize,
    access: c_uint,
) -> *mut ffi::ibv_mr {
    let arguments = [("offset", offset), ("length", length as u64), ("access", access.into())];
    // SAFETY: guaranteed by the caller; objects are never freed.
    unsafe {
        let mr = register("reg_dm_mr", &arguments, pd, ptr::null_mut(), length, &[dm.addr()]);
        if (*dm).context != (*pd).context {
            state_of((*pd).context).lock().violation("device memory of another context was registered");
        }
        mr
    }
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

pub(super) unsafe extern "C" fn alloc_dm(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_alloc_dm_attr,
) -> *mut ffi::ibv_dm {
    // SAFETY: the context is one of this provider's, and the attributes can be read.
    unsafe {
        let attr = &*attr;
        let arguments =
            [("length", attr.length as u64), ("log_align", attr.log_align_req.into()), ("mask", attr.comp_mask.into())];
        let (mut inner, failure) = state_of(context).enter("alloc_dm", &arguments);
        if let Some(failure) = failure {
            return failure.null();
        }
        let handle = inner.handle();
        let dm = new_dm(context, attr.length, handle);
        if inner.script.without.contains("memcpy_to_dm") {
            ((*dm).memcpy_to_dm, (*dm).memcpy_from_dm, (*dm).comp_mask) = (None, None, 0);
        }
        inner.output("alloc_dm: handle", &raw mut (*dm).handle);
        inner.made(Kind::DeviceMemory, dm, &[context.addr()]);
        dm
    }
}

pub(super) unsafe extern "C" fn free_dm(dm: *mut ffi::ibv_dm) -> c_int {
    // SAFETY: objects are never freed.
    unsafe { destroy_object((*dm).context, "free_dm", Kind::DeviceMemory, dm.addr()) }
}

/// Whether a copy is in bounds; otherwise it is a violation.
///
/// # Safety
///
/// The memory is one of this provider's.
unsafe fn copies(dm: *mut ffi::ibv_dm, verb: &'static str, offset: u64, length: usize) -> Result<*mut u8, c_int> {
    // SAFETY: objects are never freed.
    unsafe {
        let arguments = [("offset", offset), ("length", length as u64)];
        let (mut inner, failure) = state_of((*dm).context).enter(verb, &arguments);
        if let Some(failure) = failure {
            return Err(failure.code());
        }
        let memory = dm.cast::<Memory>();
        if offset as usize + length > (*memory).len.min(DEVICE_MEMORY) {
            inner.violation("a copy exceeded device memory");
            return Err(libc::EFAULT);
        }
        Ok((&raw mut (*memory).bytes).cast::<u8>().add(offset as usize))
    }
}

pub(super) unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ffi::ibv_dm,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: the memory is one of this provider's, and the bytes can be read.
    unsafe {
        match copies(dm, "memcpy_to_dm", offset, length) {
            Ok(to) => to.copy_from(from.cast(), length),
            Err(code) => return code,
        }
    }
    0
}

pub(super) unsafe extern "C" fn memcpy_from_dm(
    to: *mut c_void,
    dm: *mut ffi::ibv_dm,
    offset: u64,
    length: usize,
) -> c_int {
    // SAFETY: the memory is one of this provider's, and the bytes can be written.
    unsafe {
        match copies(dm, "memcpy_from_dm", offset, length) {
            Ok(from) => from.copy_to(to.cast(), length),
            Err(code) => return code,
        }
    }
    0
}

pub(super) unsafe extern "C" fn dm_export_dmabuf_fd(dm: *mut ffi::ibv_dm) -> c_int {
    // SAFETY: objects are never freed.
    let (_inner, failure) = unsafe { state_of((*dm).context) }.enter("dm_export_dmabuf_fd", &[]);
    match failure {
        Some(failure) => failure.minus(),
        // SAFETY: the call takes plain numbers.
        None => unsafe { libc::eventfd(77, libc::EFD_CLOEXEC) },
    }
}

pub(super) unsafe extern "C" fn alloc_dmah(
    context: *mut ffi::ibv_context,
    attr: *mut ibv_dmah_init_attr,
) -> *mut ibv_dmah {
    // SAFETY: the context is one of this provider's, and the attributes can be read.
    unsafe {
        let attr = &*attr;
        let arguments = [
            ("mask", attr.comp_mask.into()),
            ("cpu_id", attr.cpu_id.into()),
            ("ph", attr.ph.into()),
            ("tph_mem_type", attr.tph_mem_type.into()),
        ];
        let (mut inner, failure) = state_of(context).enter("alloc_dmah", &arguments);
        if let Some(failure) = failure {
            return failure.null();
        }
        // A DMA handle starts with its context; the rest belongs to the library.
        let dmah = forever::<[*mut ffi::ibv_context; 4]>();
        (*dmah)[0] = context;
        let dmah = dmah.cast::<ibv_dmah>();
        inner.made(Kind::DmaHandle, dmah, &[context.addr()]);
        dmah
    }
}

pub(super) unsafe extern "C" fn dealloc_dmah(dmah: *mut ibv_dmah) -> c_int {
    // SAFETY: objects are never freed.
    unsafe { destroy_object((*dmah).context, "dealloc_dmah", Kind::DmaHandle, dmah.addr()) }
}
