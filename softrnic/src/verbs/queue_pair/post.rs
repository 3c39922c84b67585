//! `ibv_post_send`, `ibv_post_recv`, `ibv_bind_mw`.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use rdma_mummy_sys::{ibv_inc_rkey, ibv_mw, ibv_mw_bind, ibv_mw_type, ibv_qp, ibv_recv_wr, ibv_send_wr};

use super::{Pair, request};
use crate::qp::{Batch, QueuePair, State};
use crate::sys::errno::Errno;
use crate::verbs::failure;
use crate::verbs::shared_receive_queue::post_receives;
use crate::wire::operation::Operation;

/// `ibv_post_send(qp, wr, bad_wr)`: those before the one that is refused are executed.
///
/// # Safety
///
/// As for C: the queue pair is alive, the requests form a list that ends, with what they name, and `bad_wr` can be written.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    let pair = unsafe { Pair::qp(qp) };
    if !takes_sends(pair) {
        // SAFETY: the caller's promise.
        return unsafe { refuse(wr, bad_wr, Errno::INVALID) };
    }
    let mut batch = pair.batch();
    // SAFETY: the caller's promise: a pointer of the list is null, or a request that can be read.
    while let Some(asked) = unsafe { wr.as_ref() } {
        // SAFETY: the caller's promise: what the request names is there.
        if let Err(errno) = unsafe { push(pair, &mut batch, asked) } {
            batch.complete();
            // SAFETY: the caller's promise.
            return unsafe { refuse(wr, bad_wr, errno) };
        }
        wr = asked.next;
    }
    batch.complete();
    0
}

/// It has a send queue, which is open.
pub(super) fn takes_sends(pair: &QueuePair) -> bool {
    pair.parts().send_queue.is_some() && !matches!(pair.state(), State::Reset | State::Init | State::ReadyToReceive)
}

/// # Safety
///
/// What the request names is there.
unsafe fn push(pair: &QueuePair, batch: &mut Batch<'_>, asked: &ibv_send_wr) -> Result<(), Errno> {
    let work = batch.push()?;
    // SAFETY: the caller's promise.
    let filled = unsafe { request::fill(work, asked, pair.parts()) };
    if filled.is_err() {
        batch.pop();
    }
    filled
}

/// # Safety
///
/// `bad_wr` can be written.
#[cold]
unsafe fn refuse(wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr, errno: Errno) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { bad_wr.write(wr) };
    failure::code(errno)
}

/// `ibv_post_recv(qp, wr, bad_wr)`: in any state but RESET; in the error state, what is posted is flushed.
///
/// # Safety
///
/// As for C: the queue pair is alive, the requests form a list that ends, with their pieces, and `bad_wr` can be written.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    let pair = unsafe { Pair::qp(qp) };
    if !takes_receives(pair) {
        // SAFETY: the caller's promise.
        unsafe { bad_wr.write(wr) };
        return failure::code(Errno::INVALID);
    }
    // SAFETY: the caller's promise.
    let code = unsafe { post_receives(&pair.parts().receives, wr, bad_wr) };
    // After it: whoever moved the queue pair to the error state before has not seen what was posted.
    if pair.state() == State::Error {
        pair.receive_posted();
    }
    code
}

/// It has a receive queue of its own, and is not in RESET.
fn takes_receives(pair: &QueuePair) -> bool {
    let parts = pair.parts();
    parts.receive_queue.is_some() && !parts.is_shared && pair.state() != State::Reset
}

/// `ibv_bind_mw(qp, mw, mw_bind)`: of windows of type 1. The window has its new key when this returns.
///
/// # Safety
///
/// As for C: the queue pair, the window and the region are alive, and the binding can be read.
pub(crate) unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, mw_bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: the caller's promise.
    failure::result(unsafe { bind(qp, mw, &*mw_bind) })
}

/// # Safety
///
/// As for [`bind_mw`].
unsafe fn bind(qp: *mut ibv_qp, mw: *mut ibv_mw, asked: &ibv_mw_bind) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let pair = unsafe { Pair::qp(qp) };
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
