//! Entries of the table, and who may use one when.
//!
//! An entry is open, and then any number of accesses read it and hold it open with a [`Hold`]; or it is closed, and then it
//! belongs to the one who has its [`Closed`], who may change it. To close is to wait for all who hold it.

use std::cell::UnsafeCell;
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::atomic::AtomicU32;
use std::sync::{Condvar, Mutex, OnceLock, Weak};

use super::rundown::{Rundown, Waiting};
use super::segment::Place;
use super::{Access, Window};
use crate::sys::fork::PerProcess;

/// What an entry is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Region,
    /// A window of type 1: any queue pair of the domain.
    Window1,
    /// A window of type 2: the queue pair of this number.
    Window2(u32),
}

/// What an access is checked against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) key: u32,
    pub(super) domain: u32,
    pub(super) kind: Kind,
    pub(super) access: Access,
    /// The first byte, and the address by which requests name it.
    pub(super) place: Place,
    pub(super) iova: u64,
    pub(super) length: u64,
}

/// A place in the table.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Slot {
    gate: Rundown,
    entry: UnsafeCell<Entry>,
    index: u32,
    /// Windows that are bound to this region: it only grows while the region is held.
    pub(super) bound: AtomicU32,
    /// Whose entry it is, where it is a window's.
    pub(super) window: Mutex<Weak<Window>>,
}

// SAFETY: `entry` is read by those who have a `Hold` and changed by the one who has the `Closed`; a `Closed` is made only when
// no `Hold` is there, and while it is there none is made. The pointers in it are names until an access follows them.
unsafe impl Sync for Slot {}
// SAFETY: as above.
unsafe impl Send for Slot {}

impl Slot {
    /// A closed one, whose key is not used for the time being.
    pub(super) fn new(index: u32) -> Self {
        // Differs from one process to the next: keys that are remembered wrongly are found sooner.
        static SEED: OnceLock<u64> = OnceLock::new();
        let seed = *SEED.get_or_init(|| RandomState::new().hash_one(index) | 1);
        let variant = (seed.wrapping_mul(u64::from(index) + 1) >> 56) as u8;
        Self {
            gate: Rundown::closed(),
            entry: UnsafeCell::new(Entry {
                key: index << 8 | u32::from(variant),
                domain: 0,
                kind: Kind::Region,
                access: 0,
                place: Place::Null,
                iova: 0,
                length: 0,
            }),
            index,
            bound: AtomicU32::new(0),
            window: Mutex::new(Weak::new()),
        }
    }

    /// The right to it, when it is used for the first time.
    ///
    /// # Safety
    ///
    /// This is called once for each slot.
    pub(super) unsafe fn first(&'static self) -> Closed {
        Closed(self)
    }

    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// Holds the entry open, unless it is closed.
    #[inline]
    pub(super) fn enter(&'static self) -> Option<Hold> {
        // Made only where it has entered: dropping one leaves.
        self.gate.enter(waiting).then(|| Hold(self))
    }

    /// Closes the entry and waits until nobody is in. `None` where it is closed already.
    pub(super) fn close(&'static self) -> Option<Closed> {
        self.gate.close(waiting).then_some(Closed(self))
    }
}

/// Those who close anything wait on these.
fn waiting() -> &'static Waiting {
    static WAITING: PerProcess<Waiting> = PerProcess::new(new(), || Box::new(new()));

    const fn new() -> Waiting {
        Waiting { lock: Mutex::new(()), left: Condvar::new() }
    }
    WAITING.get()
}

/// An entry that stays as it is until this is dropped.
#[derive(Debug)]
pub(super) struct Hold(&'static Slot);

impl Hold {
    pub(super) fn slot(&self) -> &'static Slot {
        self.0
    }
}

impl Deref for Hold {
    type Target = Entry;

    #[inline]
    fn deref(&self) -> &Entry {
        // SAFETY: who has entered may read: it is changed only once all have left. The Acquire of `enter` saw the Release of
        // `Closed::open`, and with it what the entry is.
        unsafe { &*self.0.entry.get() }
    }
}

impl Clone for Hold {
    fn clone(&self) -> Self {
        self.0.gate.enter_again();
        Self(self.0)
    }
}

impl Drop for Hold {
    #[inline]
    fn drop(&mut self) {
        self.0.gate.leave(waiting);
    }
}

/// The right to a closed entry. There is one for each that is closed.
#[derive(Debug)]
pub(super) struct Closed(&'static Slot);

impl Closed {
    pub(super) fn slot(&self) -> &'static Slot {
        self.0
    }

    pub(super) fn entry(&self) -> Entry {
        // SAFETY: nobody else reads or changes it while this is there.
        unsafe { *self.0.entry.get() }
    }

    /// Changes the key, and nobody can use it still.
    pub(super) fn set_key(&mut self, key: u32) {
        // SAFETY: as above, and this is the only one.
        unsafe { (*self.0.entry.get()).key = key };
    }

    /// The key that follows: the same index with another variant.
    pub(super) fn renew(&mut self) {
        let key = self.entry().key;
        self.set_key(key & !0xff | key.wrapping_add(1) & 0xff);
    }

    /// Opens it for accesses.
    pub(super) fn open(self, entry: Entry) {
        // SAFETY: as for `set_key`.
        unsafe { *self.0.entry.get() = entry };
        self.0.gate.open();
    }
}
