//! `ibv_wr_start`, `ibv_wr_complete` and `ibv_wr_abort`.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::Ordering;

use rdma_mummy_sys::ibv_qp_ex;

use super::super::post::takes_sends;
use super::super::{Pair, request, this_thread};
use crate::qp::{Batch, Parts, QueuePair, SendWork};
use crate::sys::errno::Errno;
use crate::verbs::failure;
use crate::verbs::guard::is_inherited;
use crate::wire::operation::{Operation, Service};

/// A batch that is being built, by one thread.
#[derive(Debug)]
pub(in super::super) struct Open {
    batch: Batch<'static>,
    pair: &'static QueuePair,
    /// The request that the setters are for: the youngest of the batch, which stays where it is until the next, or null.
    last: *mut SendWork,
    /// It has no address yet, and needs one.
    lacks_address: bool,
    /// The first; nothing is posted then.
    mistake: Option<Errno>,
}

impl Open {
    /// What the batch's thread has open.
    ///
    /// # Safety
    ///
    /// The queue pair is alive, and no other thread is between its `wr_start` and `wr_complete`. There is one such reference.
    pub(super) unsafe fn of<'o>(qp: *mut ibv_qp_ex) -> Option<&'o mut Self> {
        // SAFETY: the caller's promise: it points to a `Pair`, and the cell is this thread's, unless it is another process's.
        unsafe { if is_inherited((*qp).qp_base.context) { None } else { (*(*qp.cast::<Pair>()).batch.get()).as_mut() } }
    }

    /// Begins a request of the batch.
    pub(super) fn begin(&mut self, wr_id: u64, flags: u32, operation: Operation) -> Option<&mut SendWork> {
        self.finish_last();
        if self.mistake.is_some() {
            return None;
        }
        match self.batch.push() {
            Ok(work) => {
                request::set_flags(work, wr_id, flags, self.pair.parts());
                work.operation = operation;
                self.last = work;
                self.lacks_address = is_addressed(self.pair.parts().service, operation);
                Some(work)
            }
            Err(errno) => {
                self.mistake = Some(errno);
                None
            }
        }
    }

    /// Adds to the last request.
    pub(super) fn set(&mut self, fill: impl FnOnce(&mut SendWork, &Parts) -> Result<(), Errno>) {
        // SAFETY: it is of the batch, whose lock is held, and nothing was pushed or taken back since it was given: it is where it was,
        // and nobody else has a reference to it.
        let filled = match unsafe { self.last.as_mut() } {
            Some(work) => fill(work, self.pair.parts()),
            None => Err(Errno::INVALID),
        };
        if let Err(errno) = filled {
            self.note(errno);
        }
    }

    /// Adds its address to the last request.
    pub(super) fn address(&mut self, fill: impl FnOnce(&mut SendWork, &Parts) -> Result<(), Errno>) {
        self.lacks_address = false;
        self.set(fill);
    }

    /// Remembers a mistake, if it is the first.
    #[cold]
    pub(super) fn note(&mut self, errno: Errno) {
        self.mistake.get_or_insert(errno);
    }

    fn finish_last(&mut self) {
        if self.lacks_address {
            self.note(Errno::INVALID);
        }
        self.last = ptr::null_mut();
        self.lacks_address = false;
    }
}

/// Datagrams and requests of XRC say where they go.
fn is_addressed(service: Service, operation: Operation) -> bool {
    match service {
        Service::UnreliableDatagram => true,
        Service::XrcSend => !matches!(operation, Operation::LocalInvalidate { .. } | Operation::Bind),
        _ => false,
    }
}

/// `ibv_wr_start(qp)`: waits for other threads that post.
///
/// # Safety
///
/// As for C: the queue pair is alive until the batch ends, which this thread has not begun already.
pub(super) unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's promise.
    if unsafe { is_inherited((*qp).qp_base.context) } {
        return;
    }
    // SAFETY: the caller's promise: it is alive as long as the batch, which `destroy_qp` ends.
    let pair: &'static QueuePair = unsafe { Pair::qp(qp.cast()) };
    let batch = pair.batch();
    let mistake = (!takes_sends(pair)).then_some(Errno::INVALID);
    let open = Open { batch, pair, last: ptr::null_mut(), lacks_address: false, mistake };
    // SAFETY: it is alive, and the send queue is locked: the cell is this thread's.
    unsafe {
        (*qp.cast::<Pair>()).builder.store(this_thread(), Ordering::Relaxed);
        *(*qp.cast::<Pair>()).batch.get() = Some(open);
    }
}

/// What this thread has begun.
///
/// # Safety
///
/// The queue pair is alive, and no other thread is between its `wr_start` and `wr_complete`.
unsafe fn take(qp: *mut ibv_qp_ex) -> Option<Open> {
    // SAFETY: the caller's promise: the cell is this thread's.
    unsafe {
        (*qp.cast::<Pair>()).builder.store(0, Ordering::Relaxed);
        (*(*qp.cast::<Pair>()).batch.get()).take()
    }
}

/// `ibv_wr_complete(qp)`: posts all, or, where there was a mistake, nothing.
///
/// # Safety
///
/// As for C: the queue pair is alive, and this thread has begun a batch.
pub(super) unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: the caller's promise.
    if unsafe { is_inherited((*qp).qp_base.context) } {
        return failure::code(Errno::IO);
    }
    // SAFETY: the caller's promise: the cell is this thread's.
    let Some(mut open) = (unsafe { take(qp) }) else {
        return failure::code(Errno::INVALID);
    };
    open.finish_last();
    match open.mistake {
        None => {
            open.batch.complete();
            0
        }
        Some(errno) => {
            drop(open);
            failure::code(errno)
        }
    }
}

/// `ibv_wr_abort(qp)`.
///
/// # Safety
///
/// As for C: the queue pair is alive, and this thread has begun a batch.
pub(super) unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's promise.
    if unsafe { is_inherited((*qp).qp_base.context) } {
        return;
    }
    // SAFETY: the caller's promise: the cell is this thread's.
    drop(unsafe { take(qp) });
}
