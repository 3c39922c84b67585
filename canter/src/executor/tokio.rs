//! The core as a task of tokio's single-threaded runtime.

use std::os::fd::OwnedFd;

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;

use super::Pace;
use crate::Error;
use crate::core::Core;
use crate::error::shape;

/// Which changes of the descriptors end a sleep.
const INTEREST: Interest = Interest::READABLE.add(Interest::ERROR);

impl Core {
    /// Polls the core as a task of a `LocalSet` of tokio, in place of [`run`](Self::run): spawn it once, and use the
    /// core's futures in the other tasks of that thread. It ends only with an error. Dropping it drops the tasks of
    /// [`spawn`](Self::spawn).
    ///
    /// # Errors
    ///
    /// The runtime cannot watch descriptors.
    pub async fn drive(&self) -> Result<(), Error> {
        let inner = &self.inner;
        let _clear = inner.tasks.clear_at_end();
        let failed = |error: std::io::Error| shape(format!("cannot watch the core's descriptor: {error}"));
        let fd = register(inner.sleeper.descriptor()?).map_err(failed)?;
        let mut pace = Pace::new(inner.spin);
        loop {
            // Nothing else waits by the waker of `run`.
            inner.tasks.take_main();
            let ran = inner.tasks.run();
            if !inner.progress(ran, &mut pace) {
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

fn register(fd: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    #[expect(deprecated, reason = "the replacement is unsafe; `OwnedFd` fulfils its condition")]
    AsyncFd::with_interest(fd, INTEREST)
}
