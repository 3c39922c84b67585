//! A future that repeats an operation of the worker until it does not return `WouldBlock`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::worker::{Awaited, Handle, Source, Worker, would_block};

/// Repeats an operation. After `WouldBlock`, the worker has the waker of the task until it calls the waker, the operation
/// is repeated, or this future is dropped.
pub(super) struct Waiting<'h, A> {
    handle: &'h Handle,
    source: Source,
    attempt: A,
    waker: Option<Waker>,
}

impl<'h, A> Waiting<'h, A> {
    pub(super) fn new<T>(handle: &'h Handle, source: Source, attempt: A) -> Self
    where
        A: FnMut(&mut Worker) -> io::Result<T>,
    {
        Self { handle, source, attempt, waker: None }
    }
}

// The future never creates a pinned reference to the operation.
impl<A> Unpin for Waiting<'_, A> {}

impl<T, A: FnMut(&mut Worker) -> io::Result<T>> Future for Waiting<'_, A> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let this = &mut *self;
        // Like the waker in the worker's list, this one is dropped after the lock is released.
        let before = this.waker.take();
        let source = this.source;
        // A task that waits for a message reads what has arrived, as with a socket. Otherwise, the task that drives the
        // worker makes the turns.
        let turns = !matches!(source, Source::Connection(_, Awaited::Room | Awaited::Transfer));
        let result = this.handle.try_or_wake(turns, &mut this.attempt, |worker, result| {
            if let Some(before) = &before {
                worker.remove_from(source, before);
            }
            if would_block(result) {
                worker.register_at(source, context.waker());
            }
        });
        let result = poll(result);
        if result.is_pending() {
            this.waker = Some(context.waker().clone());
        }
        result
    }
}

impl<A> Drop for Waiting<'_, A> {
    fn drop(&mut self) {
        if let Some(waker) = self.waker.take() {
            // In a child of the worker's process, there is nothing to remove.
            _ = self.handle.with(|worker| worker.remove_from(self.source, &waker));
        }
    }
}

/// Converts `WouldBlock` to `Pending`.
pub(super) fn poll<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    if would_block(&result) { Poll::Pending } else { Poll::Ready(result) }
}
