//! Posts receives to shared receive queues and to QPs.

use std::ffi::c_int;
use std::slice;

use rdma_mummy_sys::{ibv_recv_wr, ibv_srq};

use super::SharedReceiveQueue;
use crate::mem::Piece;
use crate::srq::ReceiveQueue;
use crate::sys::errno::Errno;
use crate::verbs::failure::code;
use crate::verbs::object::Object;

/// `ibv_post_srq_recv(srq, recv_wr, bad_recv_wr)`.
///
/// # Safety
///
/// As in C: the queue is alive, the requests and their scatter/gather entries are readable, `next` is null in the last
/// request, and `bad_wr` is writable.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { post_receives(&SharedReceiveQueue::of(srq).queue, wr, bad_wr) }
}

/// Posts a list of receives. Returns zero, or an errno value. In the latter case, the first receive that was not posted
/// is stored in `bad_wr`.
///
/// # Safety
///
/// The requests and their scatter/gather entries are readable, `next` is null in the last request, and `bad_wr` is
/// writable.
pub(crate) unsafe fn post_receives(
    queue: &ReceiveQueue,
    mut wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: guaranteed by the caller: each pointer of the list is null or a readable request.
    while let Some(request) = unsafe { wr.as_ref() } {
        // SAFETY: guaranteed by the caller: the request has its pieces.
        if let Err(errno) = unsafe { post(queue, request) } {
            // SAFETY: guaranteed by the caller.
            unsafe { bad_wr.write(wr) };
            return code(errno);
        }
        wr = request.next;
    }
    0
}

/// Posts one receive.
///
/// # Safety
///
/// The pieces of the request are readable.
unsafe fn post(queue: &ReceiveQueue, request: &ibv_recv_wr) -> Result<(), Errno> {
    let count = u32::try_from(request.num_sge).map_err(|_| Errno::INVALID)?;
    if count > queue.max_sge() || count != 0 && request.sg_list.is_null() {
        return Err(Errno::INVALID);
    }
    queue.post(|work| {
        work.wr_id = request.wr_id;
        if count != 0 {
            // SAFETY: guaranteed by the caller: the request has `count` pieces.
            let pieces = unsafe { slice::from_raw_parts(request.sg_list, count as usize) };
            work.pieces.extend(pieces.iter().map(|piece| Piece {
                address: piece.addr,
                length: piece.length,
                lkey: piece.lkey,
            }));
        }
        Ok(())
    })
}
