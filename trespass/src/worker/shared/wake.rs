//! Wakes threads that are parked.

use std::cell::OnceCell;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Returns the calling thread as a waker.
pub(crate) fn this_thread() -> Waker {
    let new = || Waker::from(Arc::new(Unpark(thread::current())));
    thread_local!(static WAKER: OnceCell<Waker> = const { OnceCell::new() });
    // While the thread exits, a connection in another thread-local may still wait for its end.
    WAKER.try_with(|waker| waker.get_or_init(new).clone()).unwrap_or_else(|_| new())
}
