//! The turns of handlers that share a number of bytes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long a handler waits for others that make no progress.
const PATIENCE: Duration = Duration::from_millis(200);

/// A number of bytes that handlers take in turn. A turn has no time limit while one of the turns makes progress. If none
/// does, a waiting handler begins a new round, with all the bytes: another handler may hold its turn, or its place in the
/// queue, without polling it. So each stall adds at most as many bytes as one round has.
#[derive(Debug)]
pub(crate) struct Turns {
    bytes: usize,
    /// The round. The turns of earlier rounds are not counted any more.
    round: Mutex<Arc<Semaphore>>,
    progress: AtomicU64,
}

impl Turns {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { bytes, round: Mutex::new(Arc::new(Semaphore::new(bytes))), progress: AtomicU64::new(0) }
    }

    /// Records that a turn has made progress.
    pub(crate) fn advance(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a turn for this many bytes if no handler waits and the bytes are free.
    pub(crate) fn take(&self, length: usize) -> Option<OwnedSemaphorePermit> {
        let turn = Arc::clone(&self.round()).try_acquire_many_owned(self.count(length)).ok()?;
        self.advance();
        Some(turn)
    }

    /// Waits for a turn for this many bytes, or for all bytes if there are fewer. Returns `None` on a thread without tokio,
    /// which has no timer.
    pub(crate) async fn wait(&self, length: usize) -> Option<OwnedSemaphorePermit> {
        if let Some(turn) = self.take(length) {
            return Some(turn);
        }
        Handle::try_current().ok()?;
        loop {
            let round = Arc::clone(&self.round());
            let mut turn = std::pin::pin!(Arc::clone(&round).acquire_many_owned(self.count(length)));
            let mut seen = self.progress.load(Ordering::Relaxed);
            // The round is closed when the next one begins.
            while !round.is_closed() {
                match timeout(PATIENCE, turn.as_mut()).await {
                    Ok(Ok(turn)) => {
                        self.advance();
                        return Some(turn);
                    }
                    Ok(Err(_)) => break,
                    Err(_) => {
                        let now = self.progress.load(Ordering::Relaxed);
                        if now == seen {
                            self.next_round(&round);
                        }
                        seen = now;
                    }
                }
            }
        }
    }

    /// Begins the next round, unless another handler has begun it.
    fn next_round(&self, last: &Arc<Semaphore>) {
        let mut round = self.round();
        if Arc::ptr_eq(&round, last) {
            *round = Arc::new(Semaphore::new(self.bytes));
        }
        drop(round);
        // Wakes the handlers that wait, which is code of others.
        last.close();
    }

    fn count(&self, length: usize) -> u32 {
        u32::try_from(length.min(self.bytes)).unwrap_or(u32::MAX)
    }

    fn round(&self) -> MutexGuard<'_, Arc<Semaphore>> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
