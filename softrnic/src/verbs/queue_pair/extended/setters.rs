//! Functions that set the data and the address of the last request, such as `ibv_wr_set_sge`.
//!
//! Each function has the requirements of the C API: the QP is alive, this thread has begun a batch, and all arguments
//! are readable.

use std::ffi::c_void;
use std::slice;

use rdma_mummy_sys::{ibv_ah, ibv_data_buf, ibv_qp_ex, ibv_sge};

use super::super::request;
use super::Open;
use crate::qp::SendWork;
use crate::sys::errno::Errno;
use crate::wire::operation::Operation;

/// Clears the data that was set for the request before.
///
/// # Errors
///
/// `EINVAL` if the operation of the request has no data.
fn clear(work: &mut SendWork) -> Result<(), Errno> {
    if let Operation::LocalInvalidate { .. }
    | Operation::Bind
    | Operation::AtomicWrite { .. }
    | Operation::Flush { .. } = work.operation
    {
        return Err(Errno::INVALID);
    }
    work.is_inline = false;
    work.pieces.clear();
    work.inline.clear();
    Ok(())
}

/// `ibv_wr_set_sge`.
///
/// # Safety
///
/// The conditions of the [module](self).
pub(super) unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let piece = ibv_sge { addr, length, lkey };
    // SAFETY: guaranteed by the caller; there is one piece.
    unsafe { wr_set_sge_list(qp, 1, &raw const piece) };
}

/// `ibv_wr_set_sge_list`.
///
/// # Safety
///
/// The conditions of the [module](self).
pub(super) unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: guaranteed by the caller.
    let Some(mut open) = (unsafe { Open::of(qp) }) else { return };
    open.set(|work, parts| {
        clear(work)?;
        // SAFETY: guaranteed by the caller.
        request::gather(work, unsafe { request::pieces(list, count, parts)? });
        Ok(())
    });
}

/// `ibv_wr_set_inline_data`.
///
/// # Safety
///
/// The conditions of the [module](self).
pub(super) unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let buffer = ibv_data_buf { addr, length };
    // SAFETY: guaranteed by the caller; there is one piece.
    unsafe { wr_set_inline_data_list(qp, 1, &raw const buffer) };
}

/// `ibv_wr_set_inline_data_list`.
///
/// # Safety
///
/// The conditions of the [module](self).
pub(super) unsafe extern "C" fn wr_set_inline_data_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_data_buf) {
    // SAFETY: guaranteed by the caller.
    let Some(mut open) = (unsafe { Open::of(qp) }) else { return };
    open.set(|work, parts| {
        clear(work)?;
        if count != 0 && list.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: guaranteed by the caller: `count` buffers are readable.
        let list = if count == 0 { &[] } else { unsafe { slice::from_raw_parts(list, count) } };
        let data = list.iter().map(|buffer| (buffer.addr.cast::<u8>().cast_const(), buffer.length));
        // SAFETY: guaranteed by the caller: the data is readable.
        unsafe { request::inline(work, data, parts) }
    });
}

/// `ibv_wr_set_ud_addr`.
///
/// # Safety
///
/// The conditions of the [module](self); the handle is alive.
pub(super) unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, number: u32, key: u32) {
    // SAFETY: guaranteed by the caller.
    let Some(mut open) = (unsafe { Open::of(qp) }) else { return };
    open.address(|work, parts| {
        // SAFETY: guaranteed by the caller.
        work.destination = Some(unsafe { request::destination(ah, number, key, parts)? });
        Ok(())
    });
}

/// `ibv_wr_set_xrc_srqn`.
///
/// # Safety
///
/// The conditions of the [module](self).
pub(super) unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, number: u32) {
    // SAFETY: guaranteed by the caller.
    let Some(mut open) = (unsafe { Open::of(qp) }) else { return };
    open.address(|work, _| {
        work.srq_number = number;
        Ok(())
    });
}
