//! The end of the process. A kernel sends what its sockets have accepted also after that; a worker ends with its process,
//! which therefore waits until the peers' NICs, or over TCP the kernel, have what the worker has accepted.

use std::io;
use std::panic::catch_unwind;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Once, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::lock::within;
use super::{Handle, Shared, would_block};
use crate::worker::fork::PerProcess;

/// The workers of the process.
static WORKERS: PerProcess<Mutex<Vec<Weak<Shared>>>> = PerProcess::new(Mutex::new(Vec::new()), Box::default);
/// How long the process waits for a lock. The thread that ends the process may hold it.
const LOCKED: Duration = Duration::from_millis(200);
/// How long the process waits at most, also if the linger time is longer.
const LONGEST: Duration = Duration::from_secs(60);
/// The shortest and the longest pause between two looks at a worker.
const PAUSES: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(2)];

impl Handle {
    /// Waits until the peers' NICs, or over TCP the kernel, have received all messages and bytes that the connections of
    /// this worker have accepted, until all transfers have ended, and until the connections that the program has closed or
    /// dropped have ended. The [`Ticket`](crate::Ticket) of a batch returns its failure, and sends the
    /// notification after gets. Before a service ends, stop its acceptors
    /// ([`Acceptor::stop`]), and call `drain` when nothing sends any more. In async code, call it with `spawn_blocking`.
    ///
    /// [`Acceptor::stop`]: crate::Acceptor::stop
    ///
    /// # Errors
    ///
    /// `TimedOut` if the peers have not received everything within this time. The worker goes on.
    pub fn drain(&self, time: Duration) -> io::Result<()> {
        let deadline = Instant::now().checked_add(time);
        let [mut pause, longest] = PAUSES;
        loop {
            let mut left = 0;
            let drained = self.try_now(|worker| {
                left = worker.unfinished();
                if left == 0 { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
            });
            if !would_block(&drained) {
                return drained;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let text = format!("not all peers have received everything within {time:?} ({left} have not)");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            thread::sleep(pause);
            pause = (pause * 2).min(longest);
        }
    }
}

impl Shared {
    /// Makes the end of the process wait until the peers have received what this worker has accepted.
    pub(super) fn finish_at_exit(self: &Arc<Self>) {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            if !cfg!(miri) {
                // SAFETY: the handler does not unwind, and runs before its library is unloaded. If the registration fails
                // for lack of memory, the process does not wait.
                unsafe { libc::atexit(finish) };
            }
        });
        if let Some(mut workers) = within(LOCKED, WORKERS.get()) {
            workers.retain(|worker| worker.strong_count() != 0);
            workers.push(Arc::downgrade(self));
        }
    }

    /// Waits until the peers have received everything, at most for the linger time, and a minute, after `begun`.
    fn finish(&self, begun: Instant) {
        if self.generation.is_over() {
            return;
        }
        // A task on the thread that ends the process makes no more turns.
        self.has_task.store(false, Ordering::Relaxed);
        self.unpark_own();
        self.kick.set();
        let [mut pause, longest] = PAUSES;
        while let Some(mut core) = self.lock_within(LOCKED) {
            let (left, linger) = (core.worker.unfinished(), core.worker.options.linger.min(LONGEST));
            core.worker.flush();
            drop(core);
            if left == 0 {
                return;
            }
            if begun.elapsed() >= linger {
                rdma_mummy_sys::log!(
                    warn,
                    "the process ends, and {left} peers have not received everything within {linger:?}"
                );
                return;
            }
            thread::sleep(pause);
            pause = (pause * 2).min(longest);
        }
        rdma_mummy_sys::log!(
            warn,
            "the process ends while a thread holds the worker: peers may not receive everything"
        );
    }
}

/// Runs at the end of the process.
extern "C" fn finish() {
    let Some(list) = within(LOCKED, WORKERS.get()) else { return };
    let workers: Vec<_> = list.iter().filter_map(Weak::upgrade).collect();
    drop(list);
    let begun = Instant::now();
    // A logger may panic, because the thread's own variables no longer exist.
    _ = catch_unwind(|| workers.iter().for_each(|worker| worker.finish(begun)));
    // The other threads still run, so the worker is not dropped here.
    std::mem::forget(workers);
}
