//! The end of the process. A kernel sends what its sockets have accepted also after that; a worker ends with its process,
//! which therefore waits for it.

use std::panic::catch_unwind;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Once, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::Shared;

/// The workers of the process.
static WORKERS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());
/// How long the process waits for the lock of a worker, which the thread that ends the process may hold.
const LOCKED: Duration = Duration::from_millis(200);
/// The shortest and the longest pause between two looks at a worker.
const PAUSES: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(2)];

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
        if let Ok(mut workers) = WORKERS.lock() {
            workers.retain(|worker| worker.strong_count() != 0);
            workers.push(Arc::downgrade(self));
        }
    }

    /// Waits until the peers have received everything, at most for the linger time.
    fn finish(&self) {
        if self.generation.is_over() {
            return;
        }
        // A task on the thread that ends the process makes no more turns.
        self.has_task.store(false, Ordering::Relaxed);
        self.unpark_own();
        let (begun, [mut pause, longest]) = (Instant::now(), PAUSES);
        while let Some(core) = self.lock_within(LOCKED) {
            let (left, linger) = (core.worker.unfinished(), core.worker.options.linger);
            drop(core);
            if left == 0 {
                return;
            }
            if begun.elapsed() >= linger {
                log::warn!("the process ends, and {left} peers have not received everything within {linger:?}");
                return;
            }
            thread::sleep(pause);
            pause = (pause * 2).min(longest);
        }
    }
}

/// Runs at the end of the process.
extern "C" fn finish() {
    // In a child of `fork`, another thread of the parent may have held the lock.
    let Ok(workers) = WORKERS.try_lock() else { return };
    let workers: Vec<_> = workers.iter().filter_map(Weak::upgrade).collect();
    // A logger may panic, because the thread's own variables no longer exist.
    _ = catch_unwind(|| workers.iter().for_each(|worker| worker.finish()));
    // The other threads still run, so the worker is not dropped here.
    std::mem::forget(workers);
}
