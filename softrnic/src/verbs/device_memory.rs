//! `struct ibv_dm`. Device memory is host memory of this process. Another process can access this memory only through a
//! region.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use rdma_mummy_sys::{ibv_access_flags, ibv_alloc_dm_attr, ibv_context, ibv_dm, ibv_mr, ibv_pd};

use super::context::Context;
use super::context::is_inherited;
use super::failure;
use super::kind::Kind;
use super::memory_region::{self, Parts};
use super::object::Object;
use crate::mem::{Backing, Buffer};
use crate::sys::errno::Errno;
use crate::sys::usage::{Usage, Use};
use crate::wire::bytes::{Segment, copy};

/// NICs copy device memory in units of this many bytes.
const UNIT: u64 = 4;

/// Device memory.
#[repr(C)]
pub(crate) struct DeviceMemory {
    pub(crate) c: ibv_dm,
    buffer: Arc<Buffer>,
    /// Counts the regions that use the memory.
    usage: Usage,
    /// Keeps the context in use.
    uses: Vec<Use>,
}

// SAFETY: a `DeviceMemory` starts with an `ibv_dm`.
unsafe impl Object for DeviceMemory {
    type C = ibv_dm;
}

impl DeviceMemory {
    /// Returns the address of the `length` bytes that start at `offset`, unless they exceed the memory.
    fn range(&self, offset: u64, length: usize) -> Option<usize> {
        let offset = usize::try_from(offset).ok()?;
        let is_inside = offset <= self.buffer.len() && length <= self.buffer.len() - offset;
        is_inside.then(|| self.buffer.address(offset))
    }

    /// Copies between device memory and memory of the program, with the errors of a NIC (mlx5): `EFAULT` if the range
    /// exceeds the memory, `EINVAL` if its start or length is not a multiple of four.
    ///
    /// # Safety
    ///
    /// `host` is readable, or writable if `is_to_host`, for `length` bytes.
    unsafe fn transfer(&self, offset: u64, host: *mut c_void, length: usize, is_to_host: bool) -> Result<(), Errno> {
        let own = ptr::with_exposed_provenance_mut(self.range(offset, length).ok_or(Errno::FAULT)?);
        if !offset.is_multiple_of(UNIT) || !(length as u64).is_multiple_of(UNIT) {
            return Err(Errno::INVALID);
        }
        // SAFETY: `range` has checked the device memory, and the caller guarantees that `host` is accessible. This
        // function drops both segments.
        let (own, host) = unsafe { (Segment::of_raw(own, length), Segment::of_raw(host.cast(), length)) };
        let (from, to) = if is_to_host { (own, host) } else { (host, own) };
        copy(&[from], &[to]).map_err(|_| Errno::FAULT)
    }
}

/// Creates the object of device memory.
///
/// # Safety
///
/// The context is open.
pub(super) unsafe fn new(context: *mut ibv_context, handle: u32, buffer: Arc<Buffer>) -> *mut ibv_dm {
    let (to, from) = (Some(memcpy_to_dm as _), Some(memcpy_from_dm as _));
    let c = ibv_dm { context, memcpy_to_dm: to, memcpy_from_dm: from, comp_mask: 0, handle };
    // SAFETY: guaranteed by the caller.
    let uses = vec![unsafe { Context::of(context) }.usage.begin()];
    DeviceMemory { c, buffer, usage: Usage::default(), uses }.into_c()
}

/// `ibv_alloc_dm`. The memory is zeroed, and its alignment is at least a cache line.
///
/// # Safety
///
/// `context` is alive, and `attr` is readable.
pub(crate) unsafe extern "C" fn alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm {
    // SAFETY: guaranteed by the caller.
    let (owner, attr) = unsafe { (Context::of(context), ptr::read(attr)) };
    if attr.comp_mask != 0 {
        return failure::null(Errno::INVALID);
    }
    // SAFETY: guaranteed by the caller.
    if attr.length as u64 > unsafe { Kind::of(context) }.limits.max_dm_size {
        return failure::null(Errno::NO_MEMORY);
    }
    let alignment = 1usize.checked_shl(attr.log_align_req).unwrap_or(0).max(64);
    // A shift by at least the number of bits in a word would be invalid.
    let is_alignable = attr.log_align_req < usize::BITS;
    let buffer = if is_alignable { Buffer::new(attr.length, alignment) } else { Err(Errno::INVALID) };
    match buffer {
        Ok(buffer) => {
            let handle = owner.handle();
            let buffer = Arc::new(buffer);
            owner.exports.enter_memory(handle, &buffer);
            // SAFETY: guaranteed by the caller.
            unsafe { new(context, handle, buffer) }
        }
        Err(errno) => failure::null(errno),
    }
}

/// `ibv_free_dm`: `EBUSY` if the memory has regions.
///
/// # Safety
///
/// `dm` is alive, and is not used again if this succeeds.
pub(crate) unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    // SAFETY: guaranteed by the caller.
    let memory = unsafe { DeviceMemory::of(dm) };
    if memory.usage.is_used() {
        return failure::code(Errno::BUSY);
    }
    // SAFETY: guaranteed by the caller: this was the last use; the object has kept its context open.
    unsafe {
        Context::of(memory.c.context).exports.leave_memory(memory.c.handle);
        drop(DeviceMemory::from_c(dm).uses);
    }
    0
}

/// `ibv_reg_dm_mr`. The access flags must contain `IBV_ACCESS_ZERO_BASED`. A region ends within the memory (`EINVAL`), and
/// may be empty.
///
/// # Safety
///
/// `pd` and `dm` are alive.
pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: guaranteed by the caller.
    let memory = unsafe { DeviceMemory::of(dm) };
    if access & ibv_access_flags::IBV_ACCESS_ZERO_BASED.0 == 0 {
        return failure::null(Errno::INVALID);
    }
    match memory.range(offset, length) {
        Some(address) => {
            let keep = Arc::clone(&memory.buffer);
            let parts = Parts {
                backing: Backing::Own { address, keep },
                shown: ptr::null_mut(),
                length,
                iova: 0,
                access,
                more: vec![memory.usage.begin()],
            };
            // SAFETY: guaranteed by the caller; the region keeps the memory allocated.
            unsafe { memory_region::make(pd, parts) }
        }
        None => failure::null(Errno::INVALID),
    }
}

/// `ibv_memcpy_to_dm`.
///
/// # Safety
///
/// `dm` is alive, and `host` is readable for `length` bytes.
unsafe extern "C" fn memcpy_to_dm(dm: *mut ibv_dm, offset: u64, host: *const c_void, length: usize) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if is_inherited((*dm).context) {
            return failure::code(Errno::IO);
        }
        failure::result(DeviceMemory::of(dm).transfer(offset, host.cast_mut(), length, false))
    }
}

/// `ibv_memcpy_from_dm`.
///
/// # Safety
///
/// `dm` is alive, and `host` is writable for `length` bytes.
unsafe extern "C" fn memcpy_from_dm(host: *mut c_void, dm: *mut ibv_dm, offset: u64, length: usize) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if is_inherited((*dm).context) {
            return failure::code(Errno::IO);
        }
        failure::result(DeviceMemory::of(dm).transfer(offset, host, length, true))
    }
}
