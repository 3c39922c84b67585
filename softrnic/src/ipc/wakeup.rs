//! Wake-ups between the ends of a session.
//!
//! A consumer that finds its ring empty sets `PARKED` in the ring before it sleeps, and checks once more. A producer
//! reads that word after each record or series of records, and sends a wake-up if it is set. On both sides, a fence
//! separates the write from the following read, so at least one side reads what the peer has written. `WANTS_SPACE`
//! works the same way in the other direction.
//!
//! Atomics and locks come from `sync`, so that a test can replace them by loom's (`tests/models`).

use super::ring::Ring;
use crate::sys::sync::{AtomicBool, AtomicU8, AtomicU64, Mutex, Ordering, fence, unpoisoned};

/// How the thread of a process sleeps, which determines what wakes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Sleep {
    No,
    /// A poll of the program wakes the thread. The program then receives packets in place of the thread.
    UntilPolled,
    /// Polls do not wake the thread.
    UntilWoken,
}

/// The current [`Sleep`] of the thread.
#[derive(Debug)]
pub(super) struct Sleeper(pub(super) AtomicU8);

impl Sleeper {
    /// Whether the thread sleeps in this way. The result may be outdated.
    #[inline]
    pub(super) fn sleeps(&self, sleep: Sleep) -> bool {
        self.0.load(Ordering::Relaxed) == sleep as u8
    }

    pub(super) fn is_parked(&self) -> bool {
        self.0.load(Ordering::SeqCst) != Sleep::No as u8
    }

    /// Requests wake-ups of the thread from now on. `park` parks every session, and `is_ready` returns whether one of
    /// them has work. Returns `false` if there is already work.
    pub(super) fn park(&self, sleep: Sleep, park: impl FnOnce(), is_ready: impl FnOnce() -> bool) -> bool {
        self.0.store(sleep as u8, Ordering::SeqCst);
        // If a QP starts to wait for space at the same time, it either finds that the thread is parked, or `park` of
        // its session finds the QP.
        fence(Ordering::SeqCst);
        park();
        // If a peer writes a record or frees space at the same time, it either finds the request, or this thread finds
        // the change.
        fence(Ordering::SeqCst);
        !is_ready()
    }

    pub(super) fn unpark(&self) {
        self.0.store(Sleep::No as u8, Ordering::SeqCst);
    }
}

/// The state of a session that can be read without the locks of its ends, and the waiting QPs, which have the type `W`.
#[derive(Debug)]
pub(super) struct Wakeup<W> {
    pub(super) send: Ring,
    pub(super) receive: Ring,
    /// The tail after the records that were written.
    sent: AtomicU64,
    /// The head after the records that were read.
    taken: AtomicU64,
    waiting: Mutex<W>,
    is_waited_for: AtomicBool,
}

impl<W: Default> Wakeup<W> {
    pub(super) fn new(send: Ring, receive: Ring) -> Self {
        Self {
            send,
            receive,
            sent: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            waiting: Mutex::new(W::default()),
            is_waited_for: AtomicBool::new(false),
        }
    }

    /// Sets the tail. The producer calls this function while it holds the lock of its end.
    #[inline]
    pub(super) fn has_sent(&self, tail: u64) {
        self.sent.store(tail, Ordering::Relaxed);
    }

    /// The tail that `has_sent` has set.
    #[inline]
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Sets the head. The consumer calls this function while it holds the lock of its end.
    #[inline]
    pub(super) fn has_taken(&self, head: u64) {
        self.taken.store(head, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether there are records to read.
    #[inline]
    pub(super) fn has_come(&self) -> bool {
        self.receive.tail() != self.taken()
    }

    /// Whether QPs wait for space and there is free space.
    #[inline]
    pub(super) fn has_space(&self) -> bool {
        self.is_waited_for.load(Ordering::Relaxed) && self.send.has_space(self.sent())
    }

    #[inline]
    pub(super) fn has_free(&self, bytes: u64) -> bool {
        self.send.free(self.sent()) >= bytes
    }

    /// Adds a waiter for space by calling `add`. The caller must then retry once.
    pub(super) fn wait(&self, sleeper: &Sleeper, add: impl FnOnce(&mut W)) {
        let mut waiting = unpoisoned(self.waiting.lock());
        add(&mut waiting);
        self.is_waited_for.store(true, Ordering::SeqCst);
        drop(waiting);
        // Either this call finds that the thread sleeps, or the thread finds the waiter before it sleeps. Likewise,
        // either the consumer finds the request, or the retry of the caller finds the space.
        fence(Ordering::SeqCst);
        if sleeper.is_parked() {
            self.send.want_space();
            fence(Ordering::SeqCst);
        }
    }

    /// Takes a waiter by calling `take`, which also returns whether any waiter is left.
    pub(super) fn next_waiting<T>(&self, take: impl FnOnce(&mut W) -> (T, bool)) -> T {
        let mut waiting = unpoisoned(self.waiting.lock());
        let (taken, is_left) = take(&mut waiting);
        self.is_waited_for.store(is_left, Ordering::SeqCst);
        taken
    }

    /// Requests wake-ups before the thread sleeps.
    pub(super) fn park(&self) {
        self.receive.park();
        if self.is_waited_for.load(Ordering::SeqCst) {
            self.send.want_space();
        }
    }

    /// Withdraws the requests for wake-ups, because the thread is awake.
    pub(super) fn unpark(&self) {
        self.receive.unpark();
        self.send.want_no_space();
    }
}
