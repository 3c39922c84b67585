//! `ibv_wr_start`, `ibv_wr_complete` and `ibv_wr_abort`.

use std::ffi::c_int;
use std::mem;

use rdma_mummy_sys::ibv_qp_ex;
use rdma_mummy_sys::program::Held;

use super::super::post::accepts_sends;
use super::super::{Pair, request};
use crate::qp::{Parts, QueuePair, SendWork};
use crate::sys::errno::Errno;
use crate::verbs::context::is_inherited;
use crate::verbs::failure;
use crate::wire::operation::{Operation, Service};

/// A batch to which the program can still add requests. The batch is separate from the send queue, which is not locked
/// yet.
#[derive(Debug, Default)]
pub(in super::super) struct Building {
    /// The requests of the batch. Unused requests follow, whose memory later requests reuse.
    works: Vec<SendWork>,
    count: usize,
    /// Whether the batch contains a request. If so, the setters apply to the last one.
    has_last: bool,
    /// Whether the address of the last request must still be set.
    lacks_address: bool,
    /// The first error of a call. After an error, the batch posts no request.
    error: Option<Errno>,
}

/// The batch that the current thread has begun.
#[derive(Debug)]
pub(super) struct Open<'o> {
    batch: &'o mut Building,
    pair: &'o QueuePair,
}

impl<'o> Open<'o> {
    /// Returns the batch that the current thread has begun.
    ///
    /// # Safety
    ///
    /// The QP is alive, this thread holds the turn, and it has no other `Open` of this QP.
    pub(super) unsafe fn of(qp: *mut ibv_qp_ex) -> Option<Self> {
        // SAFETY: guaranteed by the caller: `qp` points to a `Pair`, and this thread owns the cell, unless it belongs
        // to another process.
        unsafe {
            if is_inherited((*qp).qp_base.context) {
                return None;
            }
            Some(Self { batch: &mut *(*qp.cast::<Pair>()).batch.get(), pair: Pair::qp(qp.cast()) })
        }
    }

    /// Adds a request to the batch.
    pub(super) fn begin(self, wr_id: u64, flags: u32, operation: Operation) -> Option<&'o mut SendWork> {
        let Self { batch, pair } = self;
        batch.finish_last();
        if batch.error.is_some() {
            return None;
        }
        if batch.count >= pair.parts().max_send_wr as usize {
            batch.record(Errno::NO_MEMORY);
            return None;
        }
        if batch.count == batch.works.len() {
            batch.works.push(SendWork::default());
        }
        batch.count += 1;
        batch.has_last = true;
        batch.lacks_address = is_addressed(pair.parts().service, operation);
        let work = batch.last()?;
        work.clear();
        request::set_flags(work, wr_id, flags, pair.parts());
        work.operation = operation;
        Some(work)
    }

    /// Sets the data of the last request.
    pub(super) fn set(&mut self, fill: impl FnOnce(&mut SendWork, &Parts) -> Result<(), Errno>) {
        let filled = match self.batch.last() {
            Some(work) => fill(work, self.pair.parts()),
            None => Err(Errno::INVALID),
        };
        if let Err(errno) = filled {
            self.record(errno);
        }
    }

    /// Sets the address of the last request.
    pub(super) fn address(&mut self, fill: impl FnOnce(&mut SendWork, &Parts) -> Result<(), Errno>) {
        self.batch.lacks_address = false;
        self.set(fill);
    }

    /// Records the first error.
    #[cold]
    pub(super) fn record(&mut self, errno: Errno) {
        self.batch.record(errno);
    }
}

impl Building {
    fn last(&mut self) -> Option<&mut SendWork> {
        if self.has_last { self.works.get_mut(self.count.checked_sub(1)?) } else { None }
    }

    fn record(&mut self, errno: Errno) {
        self.error.get_or_insert(errno);
    }

    fn finish_last(&mut self) {
        if self.lacks_address {
            self.record(Errno::INVALID);
        }
        (self.has_last, self.lacks_address) = (false, false);
    }

    /// Ends the batch and posts it.
    fn post(&mut self, pair: &QueuePair) -> Result<(), Errno> {
        self.finish_last();
        let works = self.works.get_mut(..self.count).unwrap_or_default();
        if let Some(errno) = self.error {
            return Err(errno);
        }
        if !accepts_sends(pair) {
            return Err(Errno::INVALID);
        }
        let mut batch = pair.batch();
        for work in works {
            mem::swap(batch.push()?, work);
        }
        batch.complete();
        Ok(())
    }

    /// Empties the batch, and drops the references that its requests contain.
    fn clear(&mut self) {
        for work in self.works.iter_mut().take(self.count) {
            work.clear();
        }
        (self.count, self.has_last, self.lacks_address, self.error) = (0, false, false, None);
    }
}

/// Whether a request of a service needs an address. Datagrams and requests of XRC do.
fn is_addressed(service: Service, operation: Operation) -> bool {
    match service {
        Service::UnreliableDatagram => true,
        Service::XrcSend => !matches!(operation, Operation::LocalInvalidate { .. } | Operation::Bind),
        _ => false,
    }
}

/// `ibv_wr_start(qp)`: waits until other threads have ended their batches. If this thread itself has an unfinished
/// batch, the call records an error in this batch. The batch then fails when it is completed, and posts no request.
///
/// # Safety
///
/// As in C: the QP is alive until the batch ends.
pub(super) unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: guaranteed by the caller.
    if unsafe { is_inherited((*qp).qp_base.context) } {
        return;
    }
    // SAFETY: guaranteed by the caller; this thread holds the turn in both cases.
    unsafe {
        let taken = (*qp.cast::<Pair>()).turn.take();
        let Some(mut open) = Open::of(qp) else { return };
        match taken {
            Err(errno) => open.record(errno),
            Ok(()) if !accepts_sends(open.pair) => open.record(Errno::INVALID),
            Ok(()) => {}
        }
    }
}

/// `ibv_wr_complete(qp)`: posts all requests of the batch, or none if any call has failed.
///
/// # Safety
///
/// As in C: the QP is alive, and this thread has begun a batch.
pub(super) unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    let _held = Held::new();
    // SAFETY: guaranteed by the caller: this thread holds the turn.
    unsafe { end(qp, |open| failure::result(open.batch.post(open.pair))) }.unwrap_or_else(failure::code)
}

/// `ibv_wr_abort(qp)`.
///
/// # Safety
///
/// As in C: the QP is alive, and this thread has begun a batch.
pub(super) unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: guaranteed by the caller: this thread holds the turn. An error means that no batch was begun.
    let _ = unsafe { end(qp, |_| ()) };
}

/// Calls `last` and then ends the batch.
///
/// # Safety
///
/// The QP is alive, and no other thread holds its turn.
unsafe fn end<T>(qp: *mut ibv_qp_ex, last: impl FnOnce(&mut Open<'_>) -> T) -> Result<T, Errno> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if is_inherited((*qp).qp_base.context) {
            return Err(Errno::IO);
        }
        let turn = &(*qp.cast::<Pair>()).turn;
        if !turn.is_mine() {
            return Err(Errno::INVALID);
        }
        let mut open = Open::of(qp).ok_or(Errno::IO)?;
        let result = last(&mut open);
        open.batch.clear();
        turn.give();
        Ok(result)
    }
}
