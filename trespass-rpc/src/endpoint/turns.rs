//! The turns of handlers that share a number of bytes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::has_timer;

/// How long a handler waits for others that transfer fewer than [`LEAST`] bytes.
const PATIENCE: Duration = Duration::from_millis(200);
const LEAST: u64 = 64 << 10;
/// Each of this many consecutive stalls doubles the bytes of the next round.
const DOUBLINGS: u32 = 6;

/// A number of bytes that handlers take in turn. A turn has no time limit while the turns together transfer at least
/// [`LEAST`] bytes in [`PATIENCE`]. If they do not, a waiting handler begins a new round, with all the bytes: a peer may
/// send slowly, and another handler may hold its turn, or its place in the queue, without polling it. After consecutive
/// stalls, rounds have more bytes, so that handlers do not wait for as many rounds as there are such calls.
#[derive(Debug)]
pub(crate) struct Turns {
    bytes: usize,
    round: Mutex<Round>,
    /// The number of bytes that were transferred.
    progress: AtomicU64,
}

#[derive(Debug)]
struct Round {
    /// The turns of earlier rounds are not counted any more.
    turns: Arc<Semaphore>,
    /// The number of stalls since the last progress.
    stalls: u32,
}

impl Turns {
    pub(crate) fn new(bytes: usize) -> Self {
        let round = Round { turns: Arc::new(Semaphore::new(bytes)), stalls: 0 };
        Self { bytes, round: Mutex::new(round), progress: AtomicU64::new(0) }
    }

    /// Records that the handlers with a turn have transferred this many bytes.
    pub(crate) fn advance(&self, bytes: usize) {
        self.progress.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Takes a turn for this many bytes if no handler waits and the bytes are free.
    pub(crate) fn take(&self, length: usize) -> Option<OwnedSemaphorePermit> {
        self.turns().try_acquire_many_owned(self.count(length)).ok()
    }

    /// Waits for a turn for this many bytes, or for all bytes if there are fewer. Returns `None` on a thread without timers
    /// of tokio.
    pub(crate) async fn wait(&self, length: usize) -> Option<OwnedSemaphorePermit> {
        if let Some(turn) = self.take(length) {
            return Some(turn);
        }
        if !has_timer() {
            return None;
        }
        loop {
            let turns = self.turns();
            let mut turn = std::pin::pin!(Arc::clone(&turns).acquire_many_owned(self.count(length)));
            let mut seen = self.progress.load(Ordering::Relaxed);
            // The round is closed when the next one begins.
            while !turns.is_closed() {
                match timeout(PATIENCE, turn.as_mut()).await {
                    Ok(Ok(turn)) => return Some(turn),
                    Ok(Err(_)) => break,
                    Err(_) => {
                        let now = self.progress.load(Ordering::Relaxed);
                        self.end_wait(&turns, now.wrapping_sub(seen) < LEAST);
                        seen = now;
                    }
                }
            }
        }
    }

    /// After a stall, begins the next round, unless another handler has begun it.
    fn end_wait(&self, last: &Arc<Semaphore>, is_stall: bool) {
        let mut round = self.round();
        if !is_stall {
            round.stalls = 0;
            return;
        }
        if Arc::ptr_eq(&round.turns, last) {
            round.turns = Arc::new(Semaphore::new(self.bytes << round.stalls.min(DOUBLINGS)));
            round.stalls += 1;
        }
        drop(round);
        // Wakes the handlers that wait, which is code of others.
        last.close();
    }

    fn count(&self, length: usize) -> u32 {
        u32::try_from(length.min(self.bytes)).unwrap_or(u32::MAX)
    }

    fn turns(&self) -> Arc<Semaphore> {
        Arc::clone(&self.round().turns)
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time limit that only a hung operation reaches.
    const LONG: Duration = Duration::from_secs(60);

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async { timeout(LONG, test).await.expect("the turn does not come") });
    }

    #[test]
    fn slow_transfer_does_not_keep_others_waiting() {
        run(async {
            let turns = Turns::new(1 << 20);
            let held = turns.take(1 << 20);
            let dripping = async {
                loop {
                    turns.advance(1);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                turn = turns.wait(1 << 20) => assert!(held.is_some() && turn.is_some()),
                () = dripping => {}
            }
        });
    }

    #[test]
    fn many_stalled_turns_delay_others_for_few_rounds() {
        run(async {
            let turns = Arc::new(Turns::new(1 << 20));
            let waits = (0..1000).map(|_| {
                let turns = Arc::clone(&turns);
                // Nothing is transferred, and no turn ends.
                tokio::spawn(async move { turns.wait(1 << 20).await.map(std::mem::forget) })
            });
            for wait in waits.collect::<Vec<_>>() {
                assert!(wait.await.unwrap().is_some());
            }
        });
    }

    #[test]
    fn progress_keeps_the_round() {
        run(async {
            let turns = Turns::new(1 << 20);
            let held = turns.take(1 << 20);
            let first = turns.turns();
            let transfer = async {
                for _ in 0..10 {
                    tokio::time::sleep(PATIENCE / 4).await;
                    turns.advance(1 << 20);
                }
                drop(held);
            };
            let (turn, ()) = tokio::join!(turns.wait(1), transfer);
            assert!(turn.is_some() && Arc::ptr_eq(&first, &turns.turns()));
        });
    }
}
