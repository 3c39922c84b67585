//! Functions that begin a request, such as `ibv_wr_send`.
//!
//! Each function has the requirements of the C API: the QP is alive and was created with the operation, and this thread
//! has begun a batch.

use std::ffi::c_void;

use rdma_mummy_sys::{ibv_mw, ibv_mw_bind_info, ibv_mw_type, ibv_qp_ex};

use super::super::request;
use super::Open;
use crate::qp::SendWork;
use crate::wire::operation::Operation;

/// Begins a request with the ID and the flags that the `ibv_qp_ex` contains.
///
/// # Safety
///
/// The conditions of the [module](self).
unsafe fn begin<'w>(qp: *mut ibv_qp_ex, operation: Operation) -> Option<&'w mut SendWork> {
    // SAFETY: guaranteed by the caller: the batch belongs to this thread, and only this call uses it.
    unsafe { Open::of(qp)?.begin((*qp).wr_id, (*qp).wr_flags, operation) }
}

/// `ibv_wr_send`.
///
/// # Safety
///
/// The conditions of the [module](self).
pub(super) unsafe extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    // SAFETY: guaranteed by the caller.
    unsafe { begin(qp, Operation::Send) };
}

/// `ibv_wr_send_imm`.
///
/// # Safety
///
/// The conditions of the [module](self).
pub(super) unsafe extern "C" fn wr_send_imm(qp: *mut ibv_qp_ex, immediate: u32) {
    // SAFETY: guaranteed by the caller.
    unsafe { begin(qp, Operation::SendImmediate { immediate }) };
}

/// `ibv_wr_send_inv`.
///
/// # Safety
///
/// The conditions of the [module](self).
pub(super) unsafe extern "C" fn wr_send_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: guaranteed by the caller.
    unsafe { begin(qp, Operation::SendInvalidate { rkey }) };
}

/// `ibv_wr_rdma_write`.
///
/// # Safety
///
/// The conditions of the [module](self).
pub(super) unsafe extern "C" fn wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, address: u64) {
    // SAFETY: guaranteed by the caller.
    unsafe { begin(qp, Operation::Write { address, rkey }) };
}

/// `ibv_wr_rdma_write_imm`.
///
/// # Safety
///
/// The conditions of the [module](self).
pub(super) unsafe extern "C" fn wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, address: u64, immediate: u32) {
    // SAFETY: guaranteed by the caller.
    unsafe { begin(qp, Operation::WriteImmediate { address, rkey, immediate }) };
}

/// `ibv_wr_rdma_read`.
///
/// # Safety
///
/// The conditions of the [module](self).
pub(super) unsafe extern "C" fn wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, address: u64) {
    // SAFETY: guaranteed by the caller.
    unsafe { begin(qp, Operation::Read { address, rkey }) };
}

/// `ibv_wr_atomic_cmp_swp`.
///
/// # Safety
///
/// The conditions of the [module](self).
pub(super) unsafe extern "C" fn wr_atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    address: u64,
    compare: u64,
    swap: u64,
) {
    // SAFETY: guaranteed by the caller.
    unsafe { begin(qp, Operation::CompareSwap { address, rkey, compare, swap }) };
}

/// `ibv_wr_atomic_fetch_add`.
///
/// # Safety
///
/// The conditions of the [module](self).
pub(super) unsafe extern "C" fn wr_atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, address: u64, add: u64) {
    // SAFETY: guaranteed by the caller.
    unsafe { begin(qp, Operation::FetchAdd { address, rkey, add }) };
}

/// `ibv_wr_atomic_write`.
///
/// # Safety
///
/// The conditions of the [module](self), and eight bytes are readable.
pub(super) unsafe extern "C" fn wr_atomic_write(qp: *mut ibv_qp_ex, rkey: u32, address: u64, value: *const c_void) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if let Some(work) = begin(qp, Operation::AtomicWrite { address, rkey }) {
            work.is_inline = true;
            work.inline.extend(value.cast::<[u8; request::WORD]>().read());
        }
    }
}

/// `ibv_wr_flush`.
///
/// # Safety
///
/// The conditions of the [module](self).
pub(super) unsafe extern "C" fn wr_flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    address: u64,
    length: usize,
    placement: u8,
    level: u8,
) {
    let length = length as u64;
    // SAFETY: guaranteed by the caller.
    unsafe { begin(qp, Operation::Flush { address, rkey, length, placement, level }) };
}

/// `ibv_wr_local_inv`.
///
/// # Safety
///
/// The conditions of the [module](self).
pub(super) unsafe extern "C" fn wr_local_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: guaranteed by the caller.
    unsafe { begin(qp, Operation::LocalInvalidate { rkey }) };
}

/// `ibv_wr_bind_mw`.
///
/// # Safety
///
/// The conditions of the [module](self); the window and the region are alive, and the information is readable.
pub(super) unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match request::bind(mw, rkey, &*info, ibv_mw_type::IBV_MW_TYPE_2) {
            Ok(bind) => {
                if let Some(work) = begin(qp, Operation::Bind) {
                    work.bind = Some(bind);
                }
            }
            Err(errno) => {
                if let Some(mut open) = Open::of(qp) {
                    open.record(errno);
                }
            }
        }
    }
}
