//! The future of the next message.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Connection;
use crate::Error;
use crate::fifo::{self, Ticket};
use crate::message::Message;

#[derive(Debug)]
pub(super) struct Recv<'c> {
    connection: &'c Connection,
    ticket: Option<Ticket>,
}

impl<'c> Recv<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self { connection, ticket: None }
    }

    fn leave(&mut self) {
        fifo::leave(&self.connection.shared.link.receivers, &mut self.ticket);
    }
}

impl Future for Recv<'_> {
    type Output = Result<Option<Message>, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let link = &self.connection.shared.link;
        let is_first = link.receivers.borrow().is_first(self.ticket);
        let message = is_first.then(|| link.inbox.borrow_mut().pop_front()).flatten();
        if message.is_some() {
            self.leave();
            return Poll::Ready(Ok(message));
        }
        if is_first && let Some(end) = link.end() {
            let end = end.clone();
            self.leave();
            return Poll::Ready(match end {
                Error::Closed => Ok(None),
                failure => Err(failure),
            });
        }
        let waker = context.waker().clone();
        let earlier = self.connection.shared.link.receivers.borrow_mut().wait(&mut self.ticket, waker);
        drop(earlier);
        Poll::Pending
    }
}

impl Drop for Recv<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}
