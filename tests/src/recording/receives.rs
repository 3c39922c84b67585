//! Lists of receives, for queue pairs, shared receive queues and work queues, and of operations on tags.

use std::sync::MutexGuard;

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::calls::Posted;
use super::failure::Failure;
use super::post::{elsewhere, slice_of};
use super::script::Bad;
use super::state::Inner;

/// A request in a list of C.
pub(super) trait Linked {
    fn next(&self) -> *mut Self;
}

macro_rules! linked {
    ($($Type:ident)+) => { $(
        impl Linked for ffi::$Type {
            fn next(&self) -> *mut Self {
                self.next
            }
        }
    )+ };
}
linked!(ibv_recv_wr ibv_ops_wr);

/// Continues a call that posts to the queue at `object`. Passes each request of a list to `take` until one is refused:
/// by the script, or by `take` with an errno value.
///
/// # Safety
///
/// The requests form a list that ends, and `bad_wr` can be written.
pub(super) unsafe fn each<T: Linked>(
    (mut inner, failure): (MutexGuard<'_, Inner>, Option<Failure>),
    object: usize,
    wr: *mut T,
    bad_wr: *mut *mut T,
    mut take: impl FnMut(&mut Inner, &mut T) -> Result<(), c_int>,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if !inner.exists(object, "a request") {
            *bad_wr = wr;
            return libc::EINVAL;
        }
        let refusal = failure.map(|failure| (Bad::At(0), failure)).or_else(|| inner.script.refusal.take());
        let (mut next, mut index) = (wr, 0);
        while let Some(request) = next.as_mut() {
            let scripted = refusal.filter(|(bad, _)| match bad {
                Bad::At(at) => *at == index,
                _ => request.next().is_null(),
            });
            if let Some((bad, failure)) = scripted {
                *bad_wr = if let Bad::At(_) = bad { next } else { elsewhere(bad, next) };
                inner.failed(failure.errno());
                return failure.code();
            }
            if let Err(errno) = take(&mut inner, request) {
                *bad_wr = next;
                inner.failed(errno);
                return errno;
            }
            next = request.next();
            index += 1;
        }
    }
    0
}

/// Does the same for receives, which `take` gets with their number of entries. Accepted ones are logged unless the
/// device is quiet.
///
/// # Safety
///
/// As for [`each`], with the entries.
pub(super) unsafe fn each_receive(
    call: (MutexGuard<'_, Inner>, Option<Failure>),
    object: usize,
    quiet: bool,
    wr: *mut ffi::ibv_recv_wr,
    bad_wr: *mut *mut ffi::ibv_recv_wr,
    mut take: impl FnMut(&mut Inner, &Posted, usize) -> Result<(), c_int>,
) -> c_int {
    let take = |inner: &mut Inner, request: &mut ffi::ibv_recv_wr| {
        // SAFETY: guaranteed by the caller.
        let entries = unsafe { slice_of(request.sg_list, request.num_sge as usize) };
        let length = entries.iter().map(|entry| entry.length).sum();
        let mut posted = Posted { wr_id: request.wr_id, length, ..Posted::default() };
        if !quiet {
            posted.entries = entries.iter().map(|sge| (sge.lkey, sge.addr, sge.length)).collect();
        }
        take(inner, &posted, entries.len())?;
        if !quiet {
            inner.posted.push(posted);
        }
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { each(call, object, wr, bad_wr, take) }
}
