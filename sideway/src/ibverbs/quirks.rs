//! Faults of drivers that would bite a user, and their mending; `manual::quirks` tells the story of each.

use std::ffi::{CStr, c_void};
use std::mem::{self, MaybeUninit};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{ptr, slice};

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_cq_ex, ibv_data_buf, ibv_qp_ex, ibv_sge};

use super::queue_pair::refuse;
use super::work_request::RefusalReason;

/// Mends the extended queue of rdma-core's soft-RoCE driver: `next_poll` there moves the cursor and drops the lock even
/// when it finds nothing, and `end_poll` does both again. A poll then takes one completion: `next_poll` is replaced by
/// one that finds nothing and touches nothing. Returns whether there was something to mend.
///
/// # Safety
///
/// `cq` is a live extended queue that nobody polls.
pub(crate) unsafe fn mend_completion_queue(cq: *mut ibv_cq_ex) -> bool {
    // SAFETY: the queue is live and nobody polls it: its functions may be read and replaced.
    unsafe {
        let faulty = is_soft_roce((*cq).next_poll.map_or(ptr::null(), |function| function as *const c_void));
        if faulty {
            (*cq).next_poll = Some(nothing_further);
        }
        faulty
    }
}

unsafe extern "C" fn nothing_further(_cq: *mut ibv_cq_ex) -> c_int {
    libc::ENOENT
}

/// Mends the extended queue pair of rdma-core's soft-RoCE driver: a gather list is taken to be as long as its first entry
/// times the number of entries, and a list of inline data is copied without a limit and sent as empty. Lists of inline data are joined first; gather lists
/// that would come out wrong are refused. Returns whether there was something to mend.
///
/// # Safety
///
/// `qp` is a live extended queue pair that nobody posts to, and its `qp_context` is a `SendContext`.
pub(crate) unsafe fn mend_queue_pair(qp: *mut ibv_qp_ex) -> bool {
    // SAFETY: the queue pair is live and nobody posts to it: its functions may be read and replaced.
    unsafe {
        let Some(driver) = (*qp).wr_set_sge_list else { return false };
        if !is_soft_roce(driver as *const c_void) {
            return false;
        }
        SOFT_ROCE_SET_SGE_LIST.store(driver as *mut c_void, Ordering::Release);
        (*qp).wr_set_sge_list = Some(set_sge_list_of_equal_lengths);
        (*qp).wr_set_inline_data_list = Some(set_joined_inline_data);
        true
    }
}

/// The soft-RoCE driver's `wr_set_sge_list`: one function for all its queue pairs.
static SOFT_ROCE_SET_SGE_LIST: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

unsafe extern "C" fn set_sge_list_of_equal_lengths(qp: *mut ibv_qp_ex, num_sge: usize, sg_list: *const ibv_sge) {
    // SAFETY: `mend_queue_pair` stored the driver's function, of this signature, before it put this one in place.
    let driver: unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_sge) =
        unsafe { mem::transmute(SOFT_ROCE_SET_SGE_LIST.load(Ordering::Acquire)) };
    let list = if num_sge == 0 {
        &[]
    } else {
        // SAFETY: the caller of `ibv_wr_set_sge_list` gives `num_sge` entries.
        unsafe { slice::from_raw_parts(sg_list, num_sge) }
    };
    let length = |sge: &ibv_sge| u64::from(sge.length);
    let total: u64 = list.iter().map(length).sum();
    let computed = list.first().map_or(0, length) * num_sge as u64;
    // SAFETY: as the caller's; `refuse` is called while a batch is built.
    unsafe {
        match list {
            [] => {}
            [single] => sys::ibv_wr_set_sge(qp, single.lkey, single.addr, single.length),
            _ if total == computed => driver(qp, num_sge, sg_list),
            _ => refuse(
                qp,
                RefusalReason::DriverFault(
                    "rdma-core's soft-RoCE driver sends gather lists with entries of different lengths wrongly from an \
                     extended queue pair: use build or build_generic",
                ),
            ),
        }
    }
}

/// More inline data than any version of the soft-RoCE driver takes, in bytes.
const MOST_INLINE: usize = 1 << 16;

unsafe extern "C" fn set_joined_inline_data(qp: *mut ibv_qp_ex, num_buf: usize, buf_list: *const ibv_data_buf) {
    let pieces = if num_buf == 0 {
        &[]
    } else {
        // SAFETY: the caller of `ibv_wr_set_inline_data_list` gives `num_buf` pieces.
        unsafe { slice::from_raw_parts(buf_list, num_buf) }
    };
    let length = pieces.iter().map(|piece| piece.length).fold(0, usize::saturating_add);
    if length > MOST_INLINE {
        // SAFETY: the driver refuses the length before it reads a byte.
        return unsafe { sys::ibv_wr_set_inline_data(qp, ptr::null_mut(), length) };
    }
    let mut joined = Vec::with_capacity(length);
    for piece in pieces.iter().filter(|piece| piece.length > 0) {
        // SAFETY: the caller gives each piece with as many bytes as it says.
        joined.extend_from_slice(unsafe { slice::from_raw_parts(piece.addr.cast::<u8>(), piece.length) });
    }
    // SAFETY: the caller's queue pair; the driver reads the bytes before it returns.
    unsafe { sys::ibv_wr_set_inline_data(qp, joined.as_mut_ptr().cast(), joined.len()) }
}

/// Whether a driver's function is of rdma-core's soft-RoCE driver (`librxe-rdmavNN.so`).
pub(crate) fn is_soft_roce(function: *const c_void) -> bool {
    // Miri has no loader to ask, and no driver of rdma-core either.
    if cfg!(miri) {
        return false;
    }
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr takes any address, and fills `info` where it returns non-zero; all-zero is a legal Dl_info.
    let (found, info) = unsafe { (libc::dladdr(function, info.as_mut_ptr()), info.assume_init()) };
    if found == 0 || info.dli_fname.is_null() {
        return false;
    }
    // SAFETY: the loader's name of a loaded object, terminated by zero and never freed while the object is loaded.
    let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes();
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    name.starts_with(b"librxe")
}
