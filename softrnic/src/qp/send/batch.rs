//! Batches of requests. A batch is built while the send queue is locked, and all its requests then begin together.

use std::sync::MutexGuard;

use crate::qp::QueuePair;
use crate::qp::send::requester::Requester;
use crate::qp::send::work::SendWork;
use crate::sys::errno::Errno;

/// A batch of requests to which the program can still add. The batch locks the send queue. [`complete`](Self::complete)
/// executes the requests. If the batch is dropped instead, its requests are discarded.
#[derive(Debug)]
pub(crate) struct Batch<'p> {
    pair: &'p QueuePair,
    /// The locked requester, or `None` after the batch has ended.
    requester: Option<MutexGuard<'p, Requester>>,
    pushed: u32,
}

impl<'p> Batch<'p> {
    pub(in crate::qp) fn new(pair: &'p QueuePair, requester: MutexGuard<'p, Requester>) -> Self {
        Self { pair, requester: Some(requester), pushed: 0 }
    }

    /// Adds a request with cleared fields, which the caller must set. Returns `ENOMEM` if the queue is full. The
    /// earlier requests then stay in the batch.
    pub(crate) fn push(&mut self) -> Result<&mut SendWork, Errno> {
        let Some(requester) = &mut self.requester else {
            return Err(Errno::INVALID);
        };
        let work = requester.push(self.pushed, self.pair.parts().max_send_wr)?;
        self.pushed += 1;
        Ok(work)
    }

    /// Removes the last request, because it is invalid.
    pub(crate) fn pop(&mut self) {
        if let Some(requester) = &mut self.requester
            && self.pushed > 0
        {
            requester.take_back(1);
            self.pushed -= 1;
        }
    }

    /// Executes the requests of the batch.
    pub(crate) fn complete(mut self) {
        if let Some(requester) = &mut self.requester {
            requester.commit(std::mem::take(&mut self.pushed));
            requester.run(self.pair);
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if let Some(mut requester) = self.requester.take() {
            requester.take_back(self.pushed);
            self.pair.unlock(requester);
        }
    }
}
