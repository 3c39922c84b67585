//! A task of tokio that drives a worker.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::runtime;

use super::super::event::Readable;
use super::super::spin::Spin;
use super::{Handle, Shared};

/// Number of turns before the task yields to other tasks of the thread.
const TURNS: usize = 32;
/// How many times as long as a call the task polls before it sleeps. While the task polls, other tasks of the thread run.
/// The time covers the pause in which the peer processes the requests of some tasks at once.
const LONGER: u32 = 25;

impl Handle {
    /// Starts a task of the current tokio runtime that drives the worker, unless such a task exists. An event then wakes
    /// only the runtime, and not the worker's own thread first. The task polls RDMA for 25 times [`Options::spin`]
    /// before it sleeps, if its waits are short.
    ///
    /// The runtime must have I/O enabled. If the task ends, for example because the runtime is dropped, the worker's own
    /// thread drives the worker again.
    ///
    /// [`Options::spin`]: crate::Options::spin
    ///
    /// # Errors
    ///
    /// The caller does not run in tokio, or the runtime has no I/O. Then the worker's own thread drives the worker.
    pub fn drive_in_tokio(&self) -> io::Result<()> {
        let runtime = runtime::Handle::try_current().map_err(io::Error::other)?;
        if !self.shared.has_task.swap(true, Ordering::Relaxed) {
            // If this fails, dropping the task clears `has_task`.
            let task = Task { shared: Arc::clone(&self.shared), spin: Spin::default() };
            let (fd, ()) = Readable::new(self.shared.fd.try_clone()?, || ())?;
            drop(runtime.spawn(task.run(fd)));
        }
        Ok(())
    }
}

impl Handle {
    /// Lets the current runtime drive the worker, if it can. Otherwise the worker's own thread drives it.
    pub(crate) fn drive_if_possible(&self) {
        if !self.shared.has_task.load(Ordering::Relaxed)
            && let Err(error) = self.drive_in_tokio()
        {
            rdma_mummy_sys::log!(debug, "{error}");
        }
    }
}

struct Task {
    shared: Arc<Shared>,
    spin: Spin,
}

impl Task {
    async fn run(mut self, fd: Readable) {
        poll_fn(|context| self.poll(context, &fd)).await;
    }

    fn poll(&mut self, context: &mut Context<'_>, fd: &Readable) -> Poll<()> {
        for _ in 0..TURNS {
            let mut core = self.shared.lock();
            if core.is_over {
                return Poll::Ready(());
            }
            // The runtime has another reference to this task, so this does not drop the task.
            core.sleeping_task = None;
            core.task_turns += 1;
            let limit = if core.worker.has_device() { self.shared.spin * LONGER } else { Duration::ZERO };
            if core.worker.turn() != 0 || core.worker.has_woken() {
                self.spin.found(limit, Instant::now);
                // The tasks that this has woken run before the next turn.
                break;
            }
            if self.spin.goes_on(limit, Instant::now) {
                drop(core);
                std::hint::spin_loop();
                continue;
            }
            // Earlier turns may have processed the events. But one that arrived after the last turn would be lost if no
            // turn followed.
            if fd.poll(context) {
                continue;
            }
            // The worker's own thread makes the turn that is due next. It may have begun to sleep before that turn was
            // needed.
            let is_late = match core.worker.prepare() {
                Ok(Duration::ZERO) => continue,
                Ok(_) => core.worker.due() < core.own_due,
                Err(error) => {
                    rdma_mummy_sys::log!(error, "cannot request a wake-up of the worker: {error}");
                    true
                }
            };
            core.sleeping_task = Some(context.waker().clone());
            drop(core);
            if is_late {
                self.shared.kick.set();
            }
            if !fd.poll(context) {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.shared.lock().sleeping_task = None;
        self.shared.has_task.store(false, Ordering::Relaxed);
        self.shared.unpark_own();
        self.shared.kick.set();
    }
}
