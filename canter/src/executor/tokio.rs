//! The core as a task of tokio's single-threaded runtime.

use std::os::fd::OwnedFd;
use std::panic::catch_unwind;
use std::time::Duration;

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;

use super::Pace;
use crate::Error;
use crate::core::Core;
use crate::error::{shape, system};

/// Which changes of the descriptors end a sleep.
const INTEREST: Interest = Interest::READABLE.add(Interest::ERROR);
/// How often the core polls without success before other tasks run. A turn of the runtime takes as long as several polls.
const TURNS: u32 = 16;

impl Core {
    /// Polls the core as a task of a `LocalSet` of tokio, in place of [`run`](Self::run): spawn it once, and use the
    /// core's futures in the other tasks of that thread. It ends only with an error. Dropping it drops the tasks of
    /// [`spawn`](Self::spawn).
    ///
    /// # Errors
    ///
    /// [`Error::Shape`]: the runtime cannot watch descriptors, or the core is run or driven already.
    pub async fn drive(&self) -> Result<(), Error> {
        let inner = &self.inner;
        let Some(_running) = inner.tasks.begin() else { return Err(shape("the core is run or driven already")) };
        let fd = register(inner.sleeper.descriptor()?)?;
        let mut pace = Pace::new(inner.spin);
        loop {
            // Nothing else waits by the waker of `run`.
            inner.tasks.take_main();
            let mut is_idle = false;
            for _ in 0..TURNS {
                let ran = inner.tasks.run();
                is_idle = inner.progress(ran, &mut pace);
                if is_idle || pace.has_work() {
                    break;
                }
            }
            if !is_idle {
                ::tokio::task::yield_now().await;
                continue;
            }
            if inner.arm() {
                let limit = inner.timers_due();
                let ready = async {
                    if let Ok(mut guard) = fd.ready(INTEREST).await {
                        guard.clear_ready();
                    }
                };
                match limit {
                    Some(limit) => drop(::tokio::time::timeout(limit, ready).await),
                    None => ready.await,
                }
            }
            inner.wake_up();
        }
    }
}

/// Registers a descriptor with the current runtime. tokio reports missing drivers only by panics.
fn register(fd: OwnedFd) -> Result<AsyncFd<OwnedFd>, Error> {
    #[expect(deprecated, reason = "the replacement is unsafe; `OwnedFd` fulfils its condition")]
    let registered = catch_unwind(|| (::tokio::time::sleep(Duration::ZERO), AsyncFd::with_interest(fd, INTEREST)).1);
    match registered {
        Ok(registered) => registered.map_err(|error| system("epoll_ctl", error)),
        Err(_) => {
            Err(shape("cannot drive the core: the tokio runtime lacks I/O or time; call enable_all() on its builder"))
        }
    }
}
