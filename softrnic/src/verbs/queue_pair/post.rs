//! `ibv_post_send`, `ibv_post_recv`, `ibv_bind_mw`.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use rdma_mummy_sys::program::Held;
use rdma_mummy_sys::{ibv_inc_rkey, ibv_mw, ibv_mw_bind, ibv_mw_type, ibv_qp, ibv_recv_wr, ibv_send_wr};

use super::{Pair, request};
use crate::qp::{Batch, QueuePair, State};
use crate::sys::errno::Errno;
use crate::verbs::failure;
use crate::verbs::shared_receive_queue::post_receives;
use crate::wire::operation::Operation;

/// `ibv_post_send(qp, wr, bad_wr)`: if a request is refused, the requests before it are still executed.
///
/// # Safety
///
/// As in C: the QP is alive, the requests are a terminated list with all their data, and `bad_wr` is writable.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let pair = unsafe { Pair::qp(qp) };
    if !accepts_sends(pair) {
        // SAFETY: guaranteed by the caller.
        return unsafe { refuse(wr, bad_wr, Errno::INVALID) };
    }
    let _held = Held::new();
    let mut batch = pair.batch();
    // SAFETY: guaranteed by the caller: each pointer of the list is null or a readable request.
    while let Some(requested) = unsafe { wr.as_ref() } {
        // SAFETY: guaranteed by the caller: all data of the request exists.
        if let Err(errno) = unsafe { push(pair, &mut batch, requested) } {
            batch.complete();
            // SAFETY: guaranteed by the caller.
            return unsafe { refuse(wr, bad_wr, errno) };
        }
        wr = requested.next;
    }
    batch.complete();
    0
}

/// Whether the QP has a send queue and is in a state in which it accepts requests.
pub(super) fn accepts_sends(pair: &QueuePair) -> bool {
    pair.parts().send_queue.is_some() && !matches!(pair.state(), State::Reset | State::Init | State::ReadyToReceive)
}

/// Adds a request to a batch.
///
/// # Safety
///
/// All data of the request exists.
unsafe fn push(pair: &QueuePair, batch: &mut Batch<'_>, requested: &ibv_send_wr) -> Result<(), Errno> {
    let work = batch.push()?;
    // SAFETY: guaranteed by the caller.
    let filled = unsafe { request::fill(work, requested, pair.parts()) };
    if filled.is_err() {
        batch.pop();
    }
    filled
}

/// Reports a refused request.
///
/// # Safety
///
/// `bad_wr` is writable.
#[cold]
unsafe fn refuse(wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr, errno: Errno) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { bad_wr.write(wr) };
    failure::code(errno)
}

/// `ibv_post_recv(qp, wr, bad_wr)`: fails in the state RESET. In the error state, the receives are flushed.
///
/// # Safety
///
/// As in C: the QP is alive, the requests and their scatter/gather entries are readable, `next` is null in the last
/// request, and `bad_wr` is writable.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let pair = unsafe { Pair::qp(qp) };
    if !accepts_receives(pair) {
        // SAFETY: guaranteed by the caller.
        unsafe { bad_wr.write(wr) };
        return failure::code(Errno::INVALID);
    }
    // SAFETY: guaranteed by the caller.
    let code = unsafe { post_receives(&pair.parts().receives, wr, bad_wr) };
    // The state is checked after posting, because a concurrent move to the error state may have missed these receives.
    if pair.state() == State::Error {
        let _held = Held::new();
        pair.receive_posted();
    }
    code
}

/// Whether the QP has a receive queue of its own and is not in RESET.
fn accepts_receives(pair: &QueuePair) -> bool {
    let parts = pair.parts();
    parts.receive_queue.is_some() && !parts.is_shared && pair.state() != State::Reset
}

/// `ibv_bind_mw(qp, mw, mw_bind)`: binds a window of type 1. The window has its new key when the call returns.
///
/// # Safety
///
/// As in C: the QP, the window and the region are alive, and the binding is readable.
pub(crate) unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, mw_bind: *mut ibv_mw_bind) -> c_int {
    let _held = Held::new();
    // SAFETY: guaranteed by the caller.
    failure::result(unsafe { bind(qp, mw, &*mw_bind) })
}

/// Posts a bind request.
///
/// # Safety
///
/// As for [`bind_mw`].
unsafe fn bind(qp: *mut ibv_qp, mw: *mut ibv_mw, requested: &ibv_mw_bind) -> Result<(), Errno> {
    // SAFETY: guaranteed by the caller.
    let pair = unsafe { Pair::qp(qp) };
    let parts = pair.parts();
    if !parts.service.sends(Operation::Bind) || !accepts_sends(pair) {
        return Err(Errno::INVALID);
    }
    let mut batch = pair.batch();
    let work = batch.push()?;
    // SAFETY: guaranteed by the caller: the field exists and is aligned, and other threads read it as a whole. The send
    // queue is locked, so that keys have the order of the requests.
    let shown = unsafe { AtomicU32::from_ptr(&raw mut (*mw).rkey) };
    let rkey = ibv_inc_rkey(shown.load(Ordering::Relaxed));
    request::set_flags(work, requested.wr_id, requested.send_flags, parts);
    work.operation = Operation::Bind;
    // SAFETY: guaranteed by the caller. A batch that is not completed is discarded.
    work.bind = Some(unsafe { request::bind(mw, rkey, &requested.bind_info, ibv_mw_type::IBV_MW_TYPE_1)? });
    shown.store(rkey, Ordering::Relaxed);
    batch.complete();
    Ok(())
}
