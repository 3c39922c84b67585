//! The result of a task.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::tasks::Tasks;

/// The result of a task. Dropping the handle leaves the task running.
pub struct JoinHandle<T> {
    state: Rc<RefCell<State<T>>>,
}

struct State<T> {
    output: Option<T>,
    waker: Option<Waker>,
}

pub(super) fn spawn<T: 'static>(tasks: &Tasks, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    let state = Rc::new(RefCell::new(State { output: None, waker: None }));
    let handle = JoinHandle { state: Rc::clone(&state) };
    tasks.add(Box::pin(async move {
        let output = future.await;
        let waker = {
            let mut state = state.borrow_mut();
            state.output = Some(output);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }));
    handle
}

impl<T> Future for JoinHandle<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let waker = context.waker().clone();
        let (output, earlier) = {
            let mut state = self.state.borrow_mut();
            (state.output.take(), state.waker.replace(waker))
        };
        drop(earlier);
        output.map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").finish_non_exhaustive()
    }
}
