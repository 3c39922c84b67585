//! A future that repeats an operation of the worker until it does not return `WouldBlock`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::worker::{Awaited, Handle, Source, Worker, would_block};

/// Repeats an operation. After `WouldBlock`, the worker has the waker of the task until it calls the waker, the operation
/// is repeated, or this future is dropped.
pub(super) struct Waiting<'h, A> {
    handle: &'h Handle,
    source: Source,
    attempt: A,
    /// The number of the last registration of the waker.
    registration: Option<u64>,
}

impl<'h, A> Waiting<'h, A> {
    pub(super) fn new<T>(handle: &'h Handle, source: Source, attempt: A) -> Self
    where
        A: FnMut(&mut Worker) -> io::Result<T>,
    {
        Self { handle, source, attempt, registration: None }
    }
}

// The future never creates a pinned reference to the operation.
impl<A> Unpin for Waiting<'_, A> {}

impl<T, A: FnMut(&mut Worker) -> io::Result<T>> Future for Waiting<'_, A> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let Self { handle, source, attempt, registration } = &mut *self;
        // A task that waits for a message reads what has arrived, as with a socket. Otherwise, the task that drives the
        // worker makes the turns.
        let turns = !matches!(source, Source::Connection(_, Awaited::Room | Awaited::Transfer));
        poll(handle.try_or_wake(turns, attempt, |worker, result| {
            if let Some(number) = registration.take() {
                worker.remove_future(*source, number);
            }
            if would_block(result) {
                *registration = Some(worker.register_future(*source, context.waker()));
            }
        }))
    }
}

impl<A> Drop for Waiting<'_, A> {
    fn drop(&mut self) {
        if let Some(number) = self.registration.take() {
            // In a child of the worker's process, there is nothing to remove.
            _ = self.handle.with(|worker| worker.remove_future(self.source, number));
        }
    }
}

/// Converts `WouldBlock` to `Pending`.
pub(super) fn poll<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    if would_block(&result) { Poll::Pending } else { Poll::Ready(result) }
}
