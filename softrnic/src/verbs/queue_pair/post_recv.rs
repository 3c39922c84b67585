//! `ibv_post_recv`.

use std::ffi::c_int;

use rdma_mummy_sys::{ibv_qp, ibv_recv_wr};

use super::Pair;
use crate::qp::{QueuePair, State};
use crate::sys::errno::Errno;
use crate::verbs::failure;
use crate::verbs::shared_receive_queue::post_receives;

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
    let pair = unsafe { Pair::engine(qp) };
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
