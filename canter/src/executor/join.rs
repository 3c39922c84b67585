//! The result of a task.

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::Error;
use crate::tasks::Tasks;

/// The result of a task, or [`Error::NoResult`] if the task was dropped. Dropping the handle leaves the task running.
pub struct JoinHandle<T> {
    state: Rc<RefCell<State<T>>>,
    /// Wakes the task.
    waker: Waker,
}

struct State<T> {
    output: Option<T>,
    has_ended: bool,
    is_aborted: bool,
    waker: Option<Waker>,
}

/// The task's side, which is dropped with the task.
struct Ended<T>(Rc<RefCell<State<T>>>);

impl<T> Drop for Ended<T> {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.0.borrow_mut();
            state.has_ended = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

pub(super) fn spawn<T: 'static>(tasks: &Tasks, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    let state = Rc::new(RefCell::new(State { output: None, has_ended: false, is_aborted: false, waker: None }));
    let ended = Ended(Rc::clone(&state));
    let waker = tasks.add(Box::pin(async move {
        let mut future = pin!(future);
        let output = poll_fn(|context| {
            if ended.0.borrow().is_aborted {
                return Poll::Ready(None);
            }
            future.as_mut().poll(context).map(Some)
        });
        let output = output.await;
        ended.0.borrow_mut().output = output;
    }));
    JoinHandle { state, waker }
}

impl<T> JoinHandle<T> {
    /// Drops the task when its turn comes, unless it has ended before. A request that it has posted may still take effect.
    pub fn abort(&self) {
        self.state.borrow_mut().is_aborted = true;
        self.waker.wake_by_ref();
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let waker = context.waker().clone();
        let (output, has_ended, earlier) = {
            let mut state = self.state.borrow_mut();
            (state.output.take(), state.has_ended, state.waker.replace(waker))
        };
        drop(earlier);
        match output {
            Some(output) => Poll::Ready(Ok(output)),
            None if has_ended => Poll::Ready(Err(Error::NoResult)),
            None => Poll::Pending,
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").finish_non_exhaustive()
    }
}
