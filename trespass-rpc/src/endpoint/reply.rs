//! Wakers of callers and handlers, which are code of the program.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use tokio::sync::oneshot;

/// The channel through which a caller receives an outcome. Sending it, or dropping this value, calls the caller's waker, so
/// do neither under a lock.
#[derive(Debug)]
pub(crate) struct Reply<T>(Option<oneshot::Sender<T>>);

impl<T> Reply<T> {
    pub(crate) fn channel() -> (Self, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Some(sender)), receiver)
    }

    /// If the caller has dropped its receiver, this drops the value.
    pub(crate) fn send(mut self, value: T) {
        if let Some(sender) = self.0.take() {
            guard(|| drop(sender.send(value)));
        }
    }

    /// Whether the caller has dropped its receiver.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.as_ref().is_none_or(oneshot::Sender::is_closed)
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(sender) = self.0.take() {
            guard(|| drop(sender));
        }
    }
}

/// Calls a waker.
pub(super) fn wake(waker: Waker) {
    guard(|| waker.wake());
}

/// Runs code of the program. If it panics, only its own task suffers: this thread may be the driver's, and other wakers
/// follow. The panic hook has reported the panic.
pub(super) fn guard(run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        // Its drop could panic too.
        std::mem::forget(payload);
    }
}
