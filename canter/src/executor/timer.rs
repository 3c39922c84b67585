//! Timers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::core::Core;

/// The future of [`Core::sleep`].
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Sleep {
    core: Core,
    /// `None`: the time is beyond what the clock can express.
    at: Option<Instant>,
    has_yielded: bool,
    key: Option<(Instant, u64)>,
}

impl Sleep {
    pub(super) fn new(core: &Core, time: Duration) -> Self {
        Self { core: core.clone(), at: Instant::now().checked_add(time), has_yielded: false, key: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.at else { return Poll::Pending };
        if self.key.is_none() && at <= Instant::now() {
            if self.has_yielded {
                return Poll::Ready(());
            }
            // A task that sleeps for no time in a loop lets the others run.
            self.has_yielded = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let tasks = &self.core.inner.tasks;
        let key = self.key.unwrap_or_else(|| tasks.add_timer(at));
        let is_set = tasks.set_timer(key, context.waker());
        self.key = Some(key);
        if is_set { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.core.inner.tasks.remove_timer(key);
        }
    }
}
