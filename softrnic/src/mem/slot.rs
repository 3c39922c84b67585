//! Entries of the table, and who may use one when.
//!
//! An entry is open, and then any number of accesses read it and hold it open with a [`Hold`]; or it is closed, and then it
//! belongs to the one who has its [`Closed`], who may change it. To close is to wait for all who hold it.

use std::cell::UnsafeCell;
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, OnceLock, Weak};

use super::{Access, Window};
use crate::sys::guard::{Guard, run_down};
use crate::sys::rundown::Rundown;
use crate::wire::bytes::{Fault, Place, Segment};

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
    rundown: Rundown,
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
            rundown: Rundown::closed(),
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
        Guard::enter(&self.rundown).map(|guard| Hold { slot: self, guard })
    }

    /// Closes the entry and waits until nobody is in. `None` where it is closed already.
    pub(super) fn close(&'static self) -> Option<Closed> {
        run_down(&self.rundown).then_some(Closed(self))
    }
}

/// An entry that stays as it is until this is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    slot: &'static Slot,
    guard: Guard,
}

impl Hold {
    pub(super) fn slot(&self) -> &'static Slot {
        self.slot
    }

    /// The bytes of the entry from `address` on.
    #[inline]
    pub(super) fn segment(self, address: u64, length: u64) -> Result<Segment, Fault> {
        let offset = address.checked_sub(self.iova).ok_or(Fault::Bounds)?;
        if offset > self.length || length > self.length - offset {
            return Err(Fault::Bounds);
        }
        let offset = usize::try_from(offset).map_err(|_| Fault::Bounds)?;
        let length = usize::try_from(length).map_err(|_| Fault::Bounds)?;
        // SAFETY: bytes of the entry, which are registered for any thread to use and stay until the guard has gone.
        Ok(unsafe { Segment::guarded(self.place.offset(offset), length, self.guard) })
    }
}

impl Deref for Hold {
    type Target = Entry;

    #[inline]
    fn deref(&self) -> &Entry {
        // SAFETY: who has entered may read: it is changed only once all have left. The Acquire of `enter` saw the Release of
        // `Closed::open`, and with it what the entry is.
        unsafe { &*self.slot.entry.get() }
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
        self.0.rundown.open();
    }
}
