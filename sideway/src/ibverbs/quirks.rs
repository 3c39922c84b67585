//! Faults of drivers that would bite a user, and their mending; `manual::quirks` tells the story of each.

use std::ffi::{CStr, c_void};
use std::mem::{self, MaybeUninit};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{ptr, slice};

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::load::{ibverbs, provider::ProviderId};
use rdma_mummy_sys::{ibv_cq_ex, ibv_data_buf, ibv_qp_ex, ibv_sge};

use super::device_context::DeviceContext;
use super::queue_pair::refuse;
use super::work_request::RefusalReason;
use crate::error::Errno;

/// Mends the extended queue of rdma-core's soft-RoCE driver: `next_poll` there moves the cursor and drops the lock even
/// when it finds nothing, and `end_poll` does both again. A poll then takes one completion: `next_poll` is replaced by
/// one that finds nothing and touches nothing. Returns whether there was something to mend.
///
/// # Safety
///
/// `cq` is a live extended queue of `driver` that nobody polls.
pub(crate) unsafe fn mend_completion_queue(driver: Driver, cq: *mut ibv_cq_ex) -> bool {
    let faulty = driver == Driver::SoftRoce;
    if faulty {
        // SAFETY: the queue is live and nobody polls it: its functions may be replaced.
        unsafe { (*cq).next_poll = Some(nothing_further) };
    }
    faulty
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
/// `qp` is a live extended queue pair of `driver` that nobody posts to, and its `qp_context` is a `SendContext`.
pub(crate) unsafe fn mend_queue_pair(driver: Driver, qp: *mut ibv_qp_ex) -> bool {
    if driver != Driver::SoftRoce {
        return false;
    }
    // SAFETY: the queue pair is live and nobody posts to it: its functions may be read and replaced.
    unsafe {
        let Some(function) = (*qp).wr_set_sge_list else { return false };
        SOFT_ROCE_SET_SGE_LIST.store(function as *mut c_void, Ordering::Release);
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

unsafe extern "C" fn set_joined_inline_data(qp: *mut ibv_qp_ex, num_buf: usize, buf_list: *const ibv_data_buf) {
    let pieces = if num_buf == 0 {
        &[]
    } else {
        // SAFETY: the caller of `ibv_wr_set_inline_data_list` gives `num_buf` pieces.
        unsafe { slice::from_raw_parts(buf_list, num_buf) }
    };
    let length = pieces.iter().map(|piece| piece.length).fold(0, usize::saturating_add);
    // No longer than the queue pair was built for: the request was compared with that.
    let mut joined = Vec::with_capacity(length);
    for piece in pieces.iter().filter(|piece| piece.length > 0) {
        // SAFETY: the caller gives each piece with as many bytes as it says.
        joined.extend_from_slice(unsafe { slice::from_raw_parts(piece.addr.cast::<u8>(), piece.length) });
    }
    // SAFETY: the caller's queue pair; the driver reads the bytes before it returns.
    unsafe { sys::ibv_wr_set_inline_data(qp, joined.as_mut_ptr().cast(), joined.len()) }
}

/// A driver whose faults this crate knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// `librxe-rdmavNN.so`
    SoftRoce,
    /// `libbnxt_re-rdmavNN.so`
    BnxtRe,
    /// `libmlx5.so`, `libmlx5-rdmavNN.so`
    Mlx5,
    /// A table of functions that the program has registered.
    InProcess,
    /// Any other of rdma-core's, or one linked into the program.
    Other,
}

impl Driver {
    /// The driver of an open device, by the file that its functions are in.
    pub(crate) fn of(context: &DeviceContext) -> Self {
        let file = driver_file(context).unwrap_or_default();
        let is_of = |name| file.starts_with(name);
        if is_of("librxe") {
            Self::SoftRoce
        } else if is_of("libbnxt_re") {
            Self::BnxtRe
        } else if is_of("libmlx5") {
            Self::Mlx5
        } else if !file.contains("-rdmav") && is_of_the_program(context) {
            Self::InProcess
        } else {
            Self::Other
        }
    }

    /// Whether `ibv_bind_mw` may be called without a region, which takes a binding back. mlx4, irdma, ionic and soft-RoCE follow the
    /// pointer that is null then.
    pub(crate) fn unbinds(self) -> bool {
        matches!(self, Self::Mlx5 | Self::InProcess)
    }

    /// Why the driver makes no extended queue pair that is safe to post to.
    pub(crate) fn refuses_extended(self) -> Option<&'static str> {
        (self == Self::BnxtRe).then_some(
            "libbnxt_re writes requests of a batch, and of a full queue, outside of the memory of its extended queue pairs",
        )
    }

    /// Whether the driver compares the length of inline data and of lists with what its extended queue pairs were built for. hns adds
    /// lengths up in 32 bits.
    pub(crate) fn compares_lengths(self) -> bool {
        matches!(self, Self::Mlx5 | Self::InProcess)
    }

    /// Why the driver resizes no completion queue.
    pub(crate) fn refuses_resize(self) -> Option<&'static str> {
        (self == Self::BnxtRe)
            .then_some("libbnxt_re frees the queue in use if the kernel refuses the new size: build another queue")
    }

    /// Whether a completion queue cannot be used any more after `ibv_resize_cq` gave this error.
    pub(crate) fn loses_queue(self, errno: Errno) -> bool {
        // It has no memory of the queue after a failed mmap. What the kernel refuses it reports before.
        self == Self::SoftRoce && !matches!(errno.raw(), libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS)
    }
}

/// Whether the functions of the device are a table that the program has registered or installed. It has promised that they do what
/// rdma-core documents: nothing of a batch that fails is posted.
pub(crate) fn is_of_the_program(context: &DeviceContext) -> bool {
    // SAFETY: the context is open as long as it is borrowed.
    unsafe { ProviderId::of_context(context.raw()) }.is_some()
        || ibverbs::library().is_ok_and(|library| library.is_from_table())
}

/// The name of the file that the functions of an open device are in.
pub(crate) fn driver_file(context: &DeviceContext) -> Option<String> {
    // Miri has no loader to ask, and no driver of rdma-core either.
    if cfg!(miri) {
        return None;
    }
    // SAFETY: the context is open as long as it is borrowed, and its driver fills the table in before it hands it out.
    let function = unsafe { (*context.raw()).ops.poll_cq }?;
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr takes any address, and fills `info` if it returns non-zero; all-zero is a legal Dl_info.
    let (found, info) = unsafe { (libc::dladdr(function as *const c_void, info.as_mut_ptr()), info.assume_init()) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's name of a loaded object, terminated by zero and never freed while the object is loaded.
    let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy();
    path.rsplit('/').next().map(str::to_owned)
}
