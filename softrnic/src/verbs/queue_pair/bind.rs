//! `ibv_bind_mw`.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use rdma_mummy_sys::{ibv_inc_rkey, ibv_mw, ibv_mw_bind, ibv_mw_type, ibv_qp};

use super::post_send::takes_sends;
use super::{Pair, request};
use crate::sys::errno::Errno;
use crate::verbs::failure;
use crate::wire::operation::Operation;

/// `ibv_bind_mw(qp, mw, mw_bind)`: of windows of type 1. The window has its new key when this returns.
///
/// # Safety
///
/// As for C: the queue pair, the window and the region are alive, and the binding can be read.
pub(crate) unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, mw_bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: the caller's promise.
    failure::result(unsafe { post(qp, mw, &*mw_bind) })
}

/// # Safety
///
/// As for [`bind_mw`].
unsafe fn post(qp: *mut ibv_qp, mw: *mut ibv_mw, asked: &ibv_mw_bind) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let pair = unsafe { Pair::engine(qp) };
    let parts = pair.parts();
    if !parts.service.sends(Operation::Bind) || !takes_sends(pair) {
        return Err(Errno::INVALID);
    }
    let mut batch = pair.batch();
    let work = batch.push()?;
    // With the send queue locked, so that keys follow each other as the requests do. SAFETY: the caller's promise: the field is there,
    // aligned, and other threads read it as C does, whole.
    let shown = unsafe { AtomicU32::from_ptr(&raw mut (*mw).rkey) };
    let rkey = ibv_inc_rkey(shown.load(Ordering::Relaxed));
    request::set_flags(work, asked.wr_id, asked.send_flags, parts);
    work.operation = Operation::Bind;
    // SAFETY: the caller's promise. A batch that is not completed is forgotten.
    work.bind = Some(unsafe { request::bind(mw, rkey, &asked.bind_info, ibv_mw_type::IBV_MW_TYPE_1)? });
    shown.store(rkey, Ordering::Relaxed);
    batch.complete();
    Ok(())
}
