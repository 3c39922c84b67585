//! The future of a request, or of a batch.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::Connection;
use crate::Error;
use crate::fifo::{self, Ticket};
use crate::request::{self, Held, Key, Refused};
use crate::table::Taken;

/// Requests that are posted at once. The future returns what `output` makes of them.
pub(super) struct Posting<'c, T> {
    connection: &'c Connection,
    phase: Phase,
    output: fn(Held) -> T,
}

enum Phase {
    /// Waits for room.
    Waiting {
        held: Held,
        ticket: Option<Ticket>,
    },
    /// The device has them.
    Posted(Key),
    Over,
}

impl<'c, T> Posting<'c, T> {
    /// The caller has checked the ranges.
    #[inline]
    pub(super) fn new(connection: &'c Connection, held: Held, output: fn(Held) -> T) -> Self {
        Self { connection, phase: Phase::Waiting { held, ticket: None }, output }
    }

    /// Posts the requests, for which there is room.
    #[inline]
    fn post(&mut self, count: u32, waker: Waker) -> Result<Key, Error> {
        let Phase::Waiting { held, .. } = std::mem::replace(&mut self.phase, Phase::Over) else {
            return Err(Error::Closed);
        };
        let (inner, link) = (self.connection.inner(), &self.connection.shared.link);
        let key = inner.table.borrow_mut().reserve(link, count);
        let posted = match &mut *link.qp.borrow_mut() {
            // SAFETY: the table holds the buffers until the completion of `key` or the end of the queue pair, unless
            // posting fails and no request was posted.
            Some(qp) => unsafe { request::post(qp, key, inner.id(), inner.inline, &held) },
            None => unreachable!("a connection has its queue pair until its last clone is dropped"),
        };
        match posted {
            Ok(()) => {
                inner.table.borrow_mut().hold(key, held, Some(waker));
                Ok(key)
            }
            Err(refused) => Err(self.refused(key, count, held, refused)),
        }
    }

    /// What follows if the device accepted a part or nothing.
    #[cold]
    fn refused(&self, key: Key, count: u32, held: Held, refused: Refused) -> Error {
        let (posted, error) = match refused {
            Refused::OtherCore => (Some(0), Error::OtherCore),
            Refused::Post(error) => (error.posted(), error.into()),
        };
        let (inner, link) = (self.connection.inner(), &self.connection.shared.link);
        if posted == Some(0) {
            inner.table.borrow_mut().cancel(key);
            if let Some(waker) = link.release(count) {
                waker.wake();
            }
            return error;
        }
        // The device may have some of the requests. The buffers stay until the queue pair has been destroyed.
        inner.table.borrow_mut().hold(key, held, None);
        drop(inner.table.borrow_mut().abandon(key));
        inner.end_now(link, error.clone());
        error
    }

    fn leave(&mut self) {
        if let Phase::Waiting { ticket, .. } = &mut self.phase {
            fifo::leave(&self.connection.shared.link.room, ticket);
        }
    }
}

impl<T> Future for Posting<'_, T> {
    type Output = Result<T, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let connection = self.connection;
        let link = &connection.shared.link;
        if let Phase::Waiting { held, ticket } = &mut self.phase {
            if let Some(end) = link.end() {
                return Poll::Ready(Err(end.clone()));
            }
            let count = held.count();
            if !link.room.borrow().is_first(*ticket) || !link.take_room(count) {
                let waker = context.waker().clone();
                let earlier = link.room.borrow_mut().wait(ticket, waker);
                drop(earlier);
                return Poll::Pending;
            }
            self.leave();
            return match self.post(count, context.waker().clone()) {
                Ok(key) => {
                    self.phase = Phase::Posted(key);
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(error)),
            };
        }
        let Phase::Posted(key) = self.phase else { return Poll::Ready(Err(Error::Closed)) };
        let taken = connection.inner().table.borrow_mut().take(key, context.waker());
        let result = match taken {
            Taken::Done(held) => Ok((self.output)(held)),
            Taken::Failed(error, held) => {
                drop(held);
                Err(error)
            }
            Taken::Waiting | Taken::Unknown if link.end().is_some() => {
                // The device may not complete what it has, for example if it was removed.
                return Poll::Ready(Err(link.end().cloned().unwrap_or(Error::Closed)));
            }
            Taken::Waiting => return Poll::Pending,
            Taken::Unknown => {
                let waker = context.waker().clone();
                let earlier = connection.inner().table.borrow_mut().set_waker(key, waker);
                drop(earlier);
                return Poll::Pending;
            }
        };
        self.phase = Phase::Over;
        Poll::Ready(result)
    }
}

impl<T> Drop for Posting<'_, T> {
    #[inline]
    fn drop(&mut self) {
        match self.phase {
            Phase::Over => {}
            Phase::Waiting { .. } => self.leave(),
            Phase::Posted(key) => {
                let left = self.connection.inner().table.borrow_mut().abandon(key);
                drop(left);
            }
        }
    }
}
