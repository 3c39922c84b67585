//! Who of a session sleeps, and who rings.
//!
//! Who finds nothing in a ring and wants to sleep says so in the ring (`PARKED`), and looks once more; who puts
//! something in looks at that word afterwards, and rings. A fence of both orders stands between the two steps on both
//! sides, so one of them sees what the other did. `WANTS_ROOM` is the same the other way round.
//!
//! What this is built from comes from `sync`, so that a test can have it of `loom` (`tests/loom`).

use super::ring::Ring;
use crate::sys::sync::{AtomicBool, AtomicU8, AtomicU64, Mutex, Ordering, fence, unpoisoned};

/// How the thread of a process sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Sleep {
    No,
    /// A program that polls wakes it, and does its work then.
    UntilPolled,
    /// A program that polls now and then does not.
    UntilRung,
}

/// Whether the thread sleeps until somebody rings, as a [`Sleep`].
#[derive(Debug)]
pub(super) struct Sleeper(pub(super) AtomicU8);

impl Sleeper {
    /// Whether it sleeps like this, as it was seen last.
    #[inline]
    pub(super) fn sleeps(&self, sleep: Sleep) -> bool {
        self.0.load(Ordering::Relaxed) == sleep as u8
    }

    pub(super) fn is_parked(&self) -> bool {
        self.0.load(Ordering::SeqCst) != Sleep::No as u8
    }

    /// The thread's: everybody is to ring from now on. `park` parks those of every session, and `is_ready` says
    /// whether one of them has something to do. `false` where there is something to do already.
    pub(super) fn park(&self, sleep: Sleep, park: impl FnOnce(), is_ready: impl FnOnce() -> bool) -> bool {
        self.0.store(sleep as u8, Ordering::SeqCst);
        // Who begins to wait for room either sees that the thread is parked, or is seen by `park` of the session.
        fence(Ordering::SeqCst);
        park();
        // Who puts something in, or makes room, either sees the wish for a bell, or is seen here.
        fence(Ordering::SeqCst);
        !is_ready()
    }

    pub(super) fn unpark(&self) {
        self.0.store(Sleep::No as u8, Ordering::SeqCst);
    }
}

/// What is to be seen of a session without the locks of its two ends, and those who wait for room in it, as a `W`.
#[derive(Debug)]
pub(super) struct Wakeup<W> {
    pub(super) send: Ring,
    pub(super) receive: Ring,
    /// The tail of what was put in.
    sent: AtomicU64,
    /// The head of what was taken out.
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

    /// The producer's: it has put in up to here. It holds the lock of its end.
    #[inline]
    pub(super) fn has_sent(&self, tail: u64) {
        self.sent.store(tail, Ordering::Relaxed);
    }

    /// The consumer's: it has taken out up to here. It holds the lock of its end.
    #[inline]
    pub(super) fn has_taken(&self, head: u64) {
        self.taken.store(head, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether there is something to take out.
    #[inline]
    pub(super) fn has_come(&self) -> bool {
        self.receive.tail() != self.taken()
    }

    /// Whether there is room for those who wait for it.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.is_waited_for.load(Ordering::Relaxed) && self.send.has_room(self.sent.load(Ordering::Relaxed))
    }

    /// Whether so many bytes are free, whoever waits.
    #[inline]
    pub(super) fn has_free(&self, bytes: u64) -> bool {
        self.send.free(self.sent.load(Ordering::Relaxed)) >= bytes
    }

    /// One that has found no room waits for it: `add` adds it. It is to be tried once more afterwards.
    pub(super) fn wait(&self, sleeper: &Sleeper, add: impl FnOnce(&mut W)) {
        let mut waiting = unpoisoned(self.waiting.lock());
        add(&mut waiting);
        self.is_waited_for.store(true, Ordering::SeqCst);
        drop(waiting);
        // Either this sees that the thread sleeps, or it sees that somebody waits before it does. And either the
        // consumer sees the wish, or the caller, who tries once more, the room.
        fence(Ordering::SeqCst);
        if sleeper.is_parked() {
            self.send.want_room();
            fence(Ordering::SeqCst);
        }
    }

    /// Takes of those who wait; `take` also tells whether somebody still does.
    pub(super) fn next_waiting<T>(&self, take: impl FnOnce(&mut W) -> (T, bool)) -> T {
        let mut waiting = unpoisoned(self.waiting.lock());
        let (taken, is_left) = take(&mut waiting);
        self.is_waited_for.store(is_left, Ordering::SeqCst);
        taken
    }

    /// Before the thread sleeps: the other process is to ring.
    pub(super) fn park(&self) {
        self.receive.park();
        if self.is_waited_for.load(Ordering::SeqCst) {
            self.send.want_room();
        }
    }

    /// The thread looks by itself.
    pub(super) fn unpark(&self) {
        self.receive.unpark();
        self.send.want_no_room();
    }
}
