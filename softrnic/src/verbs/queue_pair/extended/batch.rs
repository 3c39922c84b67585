//! `ibv_wr_start`, `ibv_wr_complete` and `ibv_wr_abort`.

use std::ffi::c_int;
use std::mem;

use rdma_mummy_sys::ibv_qp_ex;

use super::super::post::takes_sends;
use super::super::{Pair, request};
use crate::qp::{Parts, QueuePair, SendWork};
use crate::sys::errno::Errno;
use crate::verbs::failure;
use crate::verbs::guard::is_inherited;
use crate::wire::operation::{Operation, Service};

/// A batch that is being built, apart from the send queue, which nobody locks meanwhile.
#[derive(Debug, Default)]
pub(in super::super) struct Building {
    /// Those of the batch, and behind them some whose memory is used again.
    works: Vec<SendWork>,
    count: usize,
    /// The setters are for the youngest.
    has_last: bool,
    /// It has no address yet, and needs one.
    lacks_address: bool,
    /// The first; nothing is posted then.
    mistake: Option<Errno>,
}

/// What the thread that has begun a batch adds to it.
#[derive(Debug)]
pub(super) struct Open<'o> {
    batch: &'o mut Building,
    pair: &'o QueuePair,
}

impl<'o> Open<'o> {
    /// What the batch's thread has open.
    ///
    /// # Safety
    ///
    /// The queue pair is alive, and this thread has its turn. There is one such value.
    pub(super) unsafe fn of(qp: *mut ibv_qp_ex) -> Option<Self> {
        // SAFETY: the caller's promise: it points to a `Pair`, and the cell is this thread's, unless it is another process's.
        unsafe {
            if is_inherited((*qp).qp_base.context) {
                return None;
            }
            Some(Self { batch: &mut *(*qp.cast::<Pair>()).batch.get(), pair: Pair::qp(qp.cast()) })
        }
    }

    /// Begins a request of the batch.
    pub(super) fn begin(self, wr_id: u64, flags: u32, operation: Operation) -> Option<&'o mut SendWork> {
        let Self { batch, pair } = self;
        batch.finish_last();
        if batch.mistake.is_some() {
            return None;
        }
        if batch.count >= pair.parts().max_send_wr as usize {
            batch.note(Errno::NO_MEMORY);
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

    /// Adds to the last request.
    pub(super) fn set(&mut self, fill: impl FnOnce(&mut SendWork, &Parts) -> Result<(), Errno>) {
        let filled = match self.batch.last() {
            Some(work) => fill(work, self.pair.parts()),
            None => Err(Errno::INVALID),
        };
        if let Err(errno) = filled {
            self.note(errno);
        }
    }

    /// Adds its address to the last request.
    pub(super) fn address(&mut self, fill: impl FnOnce(&mut SendWork, &Parts) -> Result<(), Errno>) {
        self.batch.lacks_address = false;
        self.set(fill);
    }

    /// Remembers a mistake, if it is the first.
    #[cold]
    pub(super) fn note(&mut self, errno: Errno) {
        self.batch.note(errno);
    }
}

impl Building {
    fn last(&mut self) -> Option<&mut SendWork> {
        if self.has_last { self.works.get_mut(self.count.checked_sub(1)?) } else { None }
    }

    fn note(&mut self, errno: Errno) {
        self.mistake.get_or_insert(errno);
    }

    fn finish_last(&mut self) {
        if self.lacks_address {
            self.note(Errno::INVALID);
        }
        (self.has_last, self.lacks_address) = (false, false);
    }

    /// Ends the batch, and posts it.
    fn post(&mut self, pair: &QueuePair) -> Result<(), Errno> {
        self.finish_last();
        let works = self.works.get_mut(..self.count).unwrap_or_default();
        if let Some(errno) = self.mistake {
            return Err(errno);
        }
        if !takes_sends(pair) {
            return Err(Errno::INVALID);
        }
        let mut batch = pair.batch();
        for work in works {
            mem::swap(batch.push()?, work);
        }
        batch.complete();
        Ok(())
    }

    /// As one that has not begun; what its requests name is let go.
    fn clear(&mut self) {
        for work in self.works.iter_mut().take(self.count) {
            work.clear();
        }
        (self.count, self.has_last, self.lacks_address, self.mistake) = (0, false, false, None);
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

/// `ibv_wr_start(qp)`: waits for other threads that build a batch. Within one of this thread's, which was forgotten, that fails when it
/// ends, and nothing of it is posted.
///
/// # Safety
///
/// As for C: the queue pair is alive until the batch ends.
pub(super) unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's promise.
    if unsafe { is_inherited((*qp).qp_base.context) } {
        return;
    }
    // SAFETY: the caller's promise; this thread has the turn, in either case.
    unsafe {
        let taken = (*qp.cast::<Pair>()).turn.take();
        let Some(mut open) = Open::of(qp) else { return };
        match taken {
            Err(errno) => open.note(errno),
            Ok(()) if !takes_sends(open.pair) => open.note(Errno::INVALID),
            Ok(()) => {}
        }
    }
}

/// `ibv_wr_complete(qp)`: posts all, or, where there was a mistake, nothing.
///
/// # Safety
///
/// As for C: the queue pair is alive, and this thread has begun a batch.
pub(super) unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: the caller's promise: this thread has the turn.
    unsafe { end(qp, |open| failure::result(open.batch.post(open.pair))) }.unwrap_or_else(failure::code)
}

/// `ibv_wr_abort(qp)`.
///
/// # Safety
///
/// As for C: the queue pair is alive, and this thread has begun a batch.
pub(super) unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // What cannot be ended was not begun. SAFETY: the caller's promise: this thread has the turn.
    let _ = unsafe { end(qp, |_| ()) };
}

/// Ends the batch behind `last`.
///
/// # Safety
///
/// The queue pair is alive, and this thread has its turn, if any has.
unsafe fn end<T>(qp: *mut ibv_qp_ex, last: impl FnOnce(&mut Open<'_>) -> T) -> Result<T, Errno> {
    // SAFETY: the caller's promise.
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
