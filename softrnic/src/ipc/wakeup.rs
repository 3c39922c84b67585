//! Wake-ups between the ends of a session.
//!
//! A consumer that finds its ring empty sets `PARKED` in the ring before it sleeps, and checks once more. A producer
//! reads that word after each record, and sends a wake-up if it is set. A fence separates the two steps on both sides,
//! so at least one side sees the other's write. `WANTS_SPACE` works the same way in the other direction.
//!
//! Atomics and locks come from `sync`, so that a test can replace them by loom's (`tests/loom`).

use super::ring::Ring;
use crate::sys::sync::{AtomicBool, AtomicU8, AtomicU64, Mutex, Ordering, fence, unpoisoned};

/// How the thread of a process sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Sleep {
    No,
    /// A program that polls wakes the thread, and then receives packets in its place.
    UntilPolled,
    /// Polls do not wake the thread.
    UntilWoken,
}

/// The thread's current [`Sleep`].
#[derive(Debug)]
pub(super) struct Sleeper(pub(super) AtomicU8);

impl Sleeper {
    /// Whether the thread sleeps in this way; the answer may be outdated.
    #[inline]
    pub(super) fn sleeps(&self, sleep: Sleep) -> bool {
        self.0.load(Ordering::Relaxed) == sleep as u8
    }

    pub(super) fn is_parked(&self) -> bool {
        self.0.load(Ordering::SeqCst) != Sleep::No as u8
    }

    /// Requests wake-ups of the thread from now on. `park` parks every session, and `is_ready` returns whether one of
    /// them has work. Returns `false` if there is work already.
    pub(super) fn park(&self, sleep: Sleep, park: impl FnOnce(), is_ready: impl FnOnce() -> bool) -> bool {
        self.0.store(sleep as u8, Ordering::SeqCst);
        // A QP that starts to wait for space either sees that the thread is parked, or is seen by `park` of its
        // session.
        fence(Ordering::SeqCst);
        park();
        // A peer that writes or frees space either sees the request, or this thread sees its change.
        fence(Ordering::SeqCst);
        !is_ready()
    }

    pub(super) fn unpark(&self) {
        self.0.store(Sleep::No as u8, Ordering::SeqCst);
    }
}

/// The state of a session that is readable without the locks of its ends, and the waiting QPs as a `W`.
#[derive(Debug)]
pub(super) struct Wakeup<W> {
    pub(super) send: Ring,
    pub(super) receive: Ring,
    /// The tail of the written records.
    sent: AtomicU64,
    /// The head of the read records.
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

    /// Producer: sets the tail. The caller holds the lock of this end.
    #[inline]
    pub(super) fn has_sent(&self, tail: u64) {
        self.sent.store(tail, Ordering::Relaxed);
    }

    /// Consumer: sets the head. The caller holds the lock of this end.
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

    /// Whether QPs wait for space and space is free.
    #[inline]
    pub(super) fn has_space(&self) -> bool {
        self.is_waited_for.load(Ordering::Relaxed) && self.send.has_space(self.sent.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn has_free(&self, bytes: u64) -> bool {
        self.send.free(self.sent.load(Ordering::Relaxed)) >= bytes
    }

    /// Adds a waiter for space by calling `add`. The caller then retries once.
    pub(super) fn wait(&self, sleeper: &Sleeper, add: impl FnOnce(&mut W)) {
        let mut waiting = unpoisoned(self.waiting.lock());
        add(&mut waiting);
        self.is_waited_for.store(true, Ordering::SeqCst);
        drop(waiting);
        // Either this call sees that the thread sleeps, or the thread sees the waiter before it sleeps. Either the
        // consumer sees the request, or the caller's retry sees the space.
        fence(Ordering::SeqCst);
        if sleeper.is_parked() {
            self.send.want_space();
            fence(Ordering::SeqCst);
        }
    }

    /// Takes waiters by calling `take`, which also returns whether any is left.
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
