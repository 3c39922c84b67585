//! `struct ibv_buf`, and `ibv_reg_mr_ex`, which registers any kind of memory. As with drivers that have no memory of
//! their own, a buffer is ordinary memory.

use std::ffi::{c_int, c_void};
use std::ptr;

use rdma_mummy_sys::since_v44::{
    IBV_REG_MR_MASK_ADDR as ADDRESS, IBV_REG_MR_MASK_BUF as BUFFER, IBV_REG_MR_MASK_FD as DESCRIPTOR,
    IBV_REG_MR_MASK_FD_OFFSET as OFFSET, IBV_REG_MR_MASK_IOVA as IOVA, ibv_buf, ibv_mr_init_attr,
};
use rdma_mummy_sys::{ibv_mr, ibv_pd};

use super::context::is_inherited;
use super::failure;
use super::memory_region::{reg_dmabuf_mr, reg_mr_iova2};
use crate::mem::{self, page_size};
use crate::sys::errno::Errno;

/// A buffer. Its memory is freed with it, even if a region still refers to it, as if it were the program's own.
struct Buffer {
    pd: *mut ibv_pd,
    memory: mem::Buffer,
}

/// `ibv_alloc_buf(pd, size, buf)`: `EINVAL` if the size is zero.
///
/// # Safety
///
/// As in C: `pd` is alive, and `buf` is writable.
pub(crate) unsafe extern "C" fn alloc_buf(pd: *mut ibv_pd, size: usize, buf: *mut *mut ibv_buf) -> *mut c_void {
    match mem::Buffer::new(size, page_size()) {
        Ok(memory) => {
            let start = ptr::with_exposed_provenance_mut(memory.address(0));
            // SAFETY: guaranteed by the caller.
            unsafe { buf.write(Box::into_raw(Box::new(Buffer { pd, memory })).cast()) };
            start
        }
        Err(errno) => failure::null(errno),
    }
}

/// `ibv_free_buf(buf)`.
///
/// # Safety
///
/// As in C: the buffer came from [`alloc_buf`], its domain is alive, and it is not used again.
pub(crate) unsafe extern "C" fn free_buf(buf: *mut ibv_buf) {
    let buffer = buf.cast::<Buffer>();
    // SAFETY: guaranteed by the caller. A forked child does not destroy objects of its parent.
    unsafe {
        if !is_inherited((*(*buffer).pd).context) {
            drop(Box::from_raw(buffer));
        }
    }
}

/// `ibv_export_buf_dmabuf_fd(buf)`: `ENODATA`, because the buffer is no dma-buf.
pub(crate) unsafe extern "C" fn export_buf_dmabuf_fd(_buf: *mut ibv_buf) -> c_int {
    failure::minus_one(Errno(libc::ENODATA))
}

/// `ibv_reg_buf_mr(pd, buf, addr, length, access)`.
///
/// # Safety
///
/// As in C: the domain and the buffer are alive.
pub(crate) unsafe extern "C" fn reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut ibv_buf,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: guaranteed by the caller.
    match unsafe { check_range(pd, buf, addr, length) } {
        // SAFETY: as above; the buffer contains the memory.
        Ok(()) => unsafe { reg_mr_iova2(pd, addr, length, addr.addr() as u64, access.cast_unsigned()) },
        Err(errno) => failure::null(errno),
    }
}

/// Checks that the buffer of this domain contains a range.
///
/// # Safety
///
/// The buffer is alive.
unsafe fn check_range(pd: *mut ibv_pd, buf: *mut ibv_buf, addr: *mut c_void, length: usize) -> Result<(), Errno> {
    // SAFETY: guaranteed by the caller.
    let buffer = unsafe { buf.cast::<Buffer>().as_ref() }.ok_or(Errno::INVALID)?;
    let offset = addr.addr().checked_sub(buffer.memory.address(0)).ok_or(Errno::INVALID)?;
    let is_within = offset.checked_add(length).is_some_and(|end| end <= buffer.memory.len());
    if is_within && buffer.pd == pd { Ok(()) } else { Err(Errno::INVALID) }
}

/// `ibv_reg_mr_ex(pd, mr_init_attr)`: `EOPNOTSUPP` for DMA handles and unknown fields.
///
/// # Safety
///
/// As in C: the domain and the objects of the attributes are alive, and the fields in the mask are readable. The program
/// owns the memory until the region is deregistered.
pub(crate) unsafe extern "C" fn reg_mr_ex(pd: *mut ibv_pd, attr: *mut ibv_mr_init_attr) -> *mut ibv_mr {
    // SAFETY: guaranteed by the caller. Programs built for releases without `buf` have a shorter struct, so a reference
    // to the whole struct would be invalid.
    unsafe {
        let (mask, length, access) = ((*attr).comp_mask, (*attr).length, (*attr).access);
        if mask & !(ADDRESS | BUFFER | DESCRIPTOR | OFFSET | IOVA) != 0 {
            return failure::null(Errno::NOT_SUPPORTED);
        }
        if mask & BUFFER != 0
            && let Err(errno) = check_range(pd, (*attr).buf, (*attr).addr, length)
        {
            return failure::null(errno);
        }
        const FROM_DMABUF: u64 = DESCRIPTOR | OFFSET | IOVA;
        match mask & !BUFFER {
            FROM_DMABUF if mask & BUFFER == 0 => {
                reg_dmabuf_mr(pd, (*attr).fd_offset, length, (*attr).iova, (*attr).fd, access)
            }
            ADDRESS => reg_mr_iova2(pd, (*attr).addr, length, (*attr).addr.addr() as u64, access.cast_unsigned()),
            given if given == ADDRESS | IOVA => {
                reg_mr_iova2(pd, (*attr).addr, length, (*attr).iova, access.cast_unsigned())
            }
            _ => failure::null(Errno::INVALID),
        }
    }
}
