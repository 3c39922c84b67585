//! Lists of receives: for queue pairs, shared receive queues and work queues.

use std::sync::MutexGuard;

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::calls::Posted;
use super::failure::Failure;
use super::post::{elsewhere, slice_of};
use super::script::Bad;
use super::state::Inner;

/// Continues a call that posts receives to the queue at `object`. Passes each receive of a list to `take`, with its
/// number of entries, until one is refused: by the script, or by `take` with an errno value. Accepted ones are logged
/// unless the device is quiet.
///
/// # Safety
///
/// The requests form a list that ends, with their entries, and `bad_wr` can be written.
pub(super) unsafe fn each_receive(
    (mut inner, failure): (MutexGuard<'_, Inner>, Option<Failure>),
    object: usize,
    quiet: bool,
    wr: *mut ffi::ibv_recv_wr,
    bad_wr: *mut *mut ffi::ibv_recv_wr,
    mut take: impl FnMut(&mut Inner, &Posted, usize) -> Result<(), c_int>,
) -> c_int {
    if !inner.exists(object, "a receive") {
        // SAFETY: guaranteed by the caller.
        unsafe { *bad_wr = wr };
        return libc::EINVAL;
    }
    let refusal = failure.map(|failure| (Bad::At(0), failure)).or_else(|| inner.script.refusal.take());
    let (mut next, mut index) = (wr, 0);
    // SAFETY: guaranteed by the caller.
    unsafe {
        while !next.is_null() {
            if let Some((bad, failure)) = refusal
                && match bad {
                    Bad::At(at) => at == index,
                    _ => (*next).next.is_null(),
                }
            {
                *bad_wr = if let Bad::At(_) = bad { next } else { elsewhere(bad, next) };
                inner.failed(failure.errno());
                return failure.code();
            }
            let request = &*next;
            let entries = slice_of(request.sg_list, request.num_sge as usize);
            let length = entries.iter().map(|entry| entry.length).sum();
            let mut posted = Posted { wr_id: request.wr_id, length, ..Posted::default() };
            if !quiet {
                posted.entries = entries.iter().map(|sge| (sge.lkey, sge.addr, sge.length)).collect();
            }
            if let Err(errno) = take(&mut inner, &posted, entries.len()) {
                *bad_wr = next;
                inner.failed(errno);
                return errno;
            }
            if !quiet {
                inner.posted.push(posted);
            }
            next = request.next;
            index += 1;
        }
    }
    0
}
