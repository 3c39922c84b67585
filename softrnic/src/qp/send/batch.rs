//! Posting: requests are built with the send queue locked, and then begin together.

use std::sync::MutexGuard;

use crate::qp::QueuePair;
use crate::qp::send::requester::Requester;
use crate::qp::send::work::SendWork;
use crate::sys::errno::Errno;

/// A batch of requests that is being built: the send queue is locked. What was pushed is executed by
/// [`complete`](Self::complete), and forgotten when this is dropped.
#[derive(Debug)]
pub(crate) struct Batch<'p> {
    pair: &'p QueuePair,
    /// Until it ends.
    requester: Option<MutexGuard<'p, Requester>>,
    pushed: u32,
}

impl<'p> Batch<'p> {
    pub(in crate::qp) fn new(pair: &'p QueuePair, requester: MutexGuard<'p, Requester>) -> Self {
        Self { pair, requester: Some(requester), pushed: 0 }
    }

    /// The next request, cleared, to be filled in; `ENOMEM` where the queue is full. Requests pushed before stay.
    pub(crate) fn push(&mut self) -> Result<&mut SendWork, Errno> {
        let Some(requester) = &mut self.requester else {
            return Err(Errno::INVALID);
        };
        let work = requester.push(self.pushed, self.pair.parts().max_send_wr)?;
        self.pushed += 1;
        Ok(work)
    }

    /// Takes back the one that was pushed last, since it is not valid.
    pub(crate) fn pop(&mut self) {
        if let Some(requester) = &mut self.requester
            && self.pushed > 0
        {
            requester.take_back(1);
            self.pushed -= 1;
        }
    }

    /// Executes what was pushed.
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
