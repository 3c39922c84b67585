//! One poll of the completion queue, and what follows from the completions.

use std::mem;
use std::rc::Rc;

use sideway::ibverbs::completion::{
    CompletionQueue, PollCompletionQueueError, WorkCompletion, WorkCompletionFlags, WorkCompletionOperationType,
    WorkCompletionStatus,
};

use super::Inner;
use crate::Error;
use crate::link::Link;
use crate::message::Message;
use crate::request::Number;
use crate::table::Consequences;

/// The maximum number of completions of a turn.
const MOST: u32 = 64;
/// How many free buffers are worth a post of receives.
const WORTH_A_POST: usize = 8;

impl Inner {
    /// Polls completions once. Returns their number.
    ///
    /// # Errors
    ///
    /// The completion queue is broken. All connections have ended.
    #[inline]
    pub(crate) fn turn(&self) -> Result<u32, Error> {
        let mut scratch = self.scratch.borrow_mut();
        let polled = self.poll(&mut scratch);
        match scratch.only() {
            Some(waker) if polled.is_ok() => {
                drop(scratch);
                // Foreign code runs here, and may use the core.
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            waker => {
                let mut then = mem::take(&mut *scratch);
                drop(scratch);
                then.wakers.extend(waker.flatten());
                self.conclude(then, polled.as_ref().err());
            }
        }
        let taken = polled?;
        if self.receives.is_low() || taken > 0 && self.receives.has_free(WORTH_A_POST) {
            self.top_up()?;
        }
        Ok(taken)
    }

    /// Posts the buffers that the program has dropped.
    fn top_up(&self) -> Result<(), Error> {
        let posted = self.replenish();
        if let Err(error) = &posted {
            self.conclude(Consequences::default(), Some(error));
        }
        posted
    }

    /// Ends the connections that failed, and then runs foreign code, which may use the core.
    fn conclude(&self, mut then: Consequences, broken: Option<&Error>) {
        if let Some(error) = broken {
            self.fail_all(error, &mut then);
        }
        let Consequences { wakers, released, failed } = &mut then;
        for (link, cause) in failed.drain(..) {
            self.end(&link, cause, wakers);
        }
        released.clear();
        for waker in wakers.drain(..) {
            waker.wake();
        }
        *self.scratch.borrow_mut() = then;
    }

    /// Lets the next completion raise an event.
    pub(crate) fn notify(&self) -> Result<(), Error> {
        Ok(self.cq.borrow().req_notify(false)?)
    }

    #[inline]
    fn poll(&self, then: &mut Consequences) -> Result<u32, Error> {
        if let Some(cause) = self.broken.get() {
            return Err(cause.clone());
        }
        let mut table = self.table.borrow_mut();
        let polled = self.cq.borrow_mut().poll_each(MOST, |completion| {
            let status = completion.status();
            let failure = (status != WorkCompletionStatus::Success).then(|| self.failure(&completion));
            match Number::of(completion.wr_id()) {
                Number::Last(key) => table.complete(key, failure, then),
                Number::Receive(slot) => self.receive(slot, &completion, failure, then),
                Number::Earlier(key) => {
                    if let Some(failure) = failure {
                        table.fail_earlier(key, failure, then);
                    }
                }
            }
            Ok::<_, PollCompletionQueueError>(())
        });
        polled.map_err(|error| match error {
            PollCompletionQueueError::Verb(error) => error.into(),
            other => crate::error::system("ibv_poll_cq", other),
        })
    }

    /// What a failed completion means.
    #[cold]
    fn failure(&self, wc: &impl WorkCompletion) -> Error {
        let is_receive = matches!(Number::of(wc.wr_id()), Number::Receive(_));
        match wc.status() {
            // The queue pair had failed or been stopped before, and the cause is known or was the end of the peer.
            WorkCompletionStatus::WorkRequestFlushedError => Error::Closed,
            WorkCompletionStatus::LocalLengthError if is_receive => {
                Error::MessageTooLong { limit: self.receives.size() }
            }
            status => Error::Request { status, vendor_err: wc.vendor_err() },
        }
    }

    #[inline]
    fn receive(&self, slot: u32, wc: &impl WorkCompletion, failure: Option<Error>, then: &mut Consequences) {
        let Some(mut buf) = self.receives.take(slot) else { return };
        let link = self.links.borrow().get(&wc.qp_num()).map(Rc::clone);
        // The connection has been dropped.
        let Some(link) = link else { return };
        if let Some(failure) = failure {
            return then.failed.push((link, failure));
        }
        let length = wc.byte_len() as usize;
        let is_write = wc.opcode() == WorkCompletionOperationType::ReceiveWriteWithImmediate;
        // The device does not receive more than the buffer holds.
        let _ = buf.set_len(if is_write { 0 } else { length.min(buf.capacity()) });
        let imm = wc.wc_flags().contains(WorkCompletionFlags::WithImmediate).then(|| wc.imm_data());
        let mut inbox = link.inbox.borrow_mut();
        if inbox.len() < self.unread {
            link.full_since.set(None);
        } else if *link.full_since.get().get_or_insert(self.round.get()) != self.round.get() {
            // The tasks have run since, and did not receive.
            drop(inbox);
            return then.failed.push((link, Error::Unread { limit: self.unread }));
        } else {
            link.full_since.set(Some(self.round.get()));
        }
        inbox.push_back(Message::new(buf, imm, is_write.then_some(length)));
        if let Some(waker) = link.receivers.borrow_mut().first() {
            then.wakers.push(waker);
        }
    }

    /// Ends a connection: wakes all futures that wait for it.
    pub(crate) fn end(&self, link: &Rc<Link>, cause: Error, wakers: &mut Vec<std::task::Waker>) {
        if !link.set_end(cause) {
            return;
        }
        link.room.borrow_mut().all(wakers);
        link.receivers.borrow_mut().all(wakers);
        self.table.borrow_mut().wake_all(link, wakers);
    }

    /// Ends a connection from outside of a turn.
    pub(crate) fn end_now(&self, link: &Rc<Link>, cause: Error) {
        let mut wakers = Vec::new();
        self.end(link, cause, &mut wakers);
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    /// Ends a connection after what the peer sent before, and after what this side sent and the peer has.
    pub(crate) fn end_in_order(&self, link: &Rc<Link>, cause: Error) {
        let _ = self.catch_up();
        self.end_now(link, cause);
    }

    /// Polls what the queue has, so that what arrived before an event is known before the event.
    ///
    /// # Errors
    ///
    /// See [`turn`](Self::turn).
    pub(crate) fn catch_up(&self) -> Result<(), Error> {
        // A peer that sends all the time does not keep the core here.
        let mut left = self.entries;
        while left > 0 {
            match self.turn()? {
                0 => break,
                taken => left = left.saturating_sub(taken),
            }
        }
        Ok(())
    }

    #[cold]
    fn fail_all(&self, error: &Error, then: &mut Consequences) {
        // The first cause counts.
        let _ = self.broken.set(error.clone());
        let links = self.links.borrow();
        then.failed
            .extend(links.values().filter(|link| link.end().is_none()).map(|link| (Rc::clone(link), error.clone())));
    }
}
