//! A future that repeats an operation of the worker until it does not return `WouldBlock`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::worker::{Awaited, Handle, Registration, Source, Worker, would_block};

/// Repeats an operation. After `WouldBlock`, the worker has the waker of the task until it calls the waker, the operation
/// is repeated, or this future is dropped.
pub(super) struct Waiting<'h, A> {
    handle: &'h Handle,
    source: Source,
    attempt: A,
    registration: Option<Registration>,
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
        // Cloned before the worker is locked, and dropped after the lock is released.
        let mut waker = Some(context.waker().clone());
        let mut _before = None;
        poll(handle.try_or_wake(turns, attempt, |worker, result| {
            _before = registration.take().and_then(|before| worker.remove_call(before));
            let waker = if would_block(result) { waker.take() } else { None };
            *registration = waker.map(|waker| worker.register_call(*source, waker));
        }))
    }
}

impl<A> Drop for Waiting<'_, A> {
    fn drop(&mut self) {
        if let Some(registration) = self.registration.take() {
            // In a child of the worker's process, there is nothing to remove.
            drop(self.handle.with(|worker| worker.remove_call(registration)));
        }
    }
}

/// Converts `WouldBlock` to `Pending`.
pub(super) fn poll<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    if would_block(&result) { Poll::Pending } else { Poll::Ready(result) }
}
