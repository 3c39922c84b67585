//! `ibv_post_send`.

use std::ffi::c_int;

use rdma_mummy_sys::{ibv_qp, ibv_send_wr};

use super::{Pair, request};
use crate::qp::{Batch, QueuePair, State};
use crate::sys::errno::Errno;
use crate::verbs::failure;

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
    let pair = unsafe { Pair::engine(qp) };
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
