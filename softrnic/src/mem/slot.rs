//! The slots of the table of keys, with run-down protection for their entries.
//!
//! Any number of accesses can read an open entry; each keeps the entry open with a [`Hold`]. Only the owner of the
//! [`Closed`] can change a closed entry. Closing waits for all `Hold`s.

use std::cell::UnsafeCell;
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, OnceLock, Weak};

use super::{Access, Window};
use crate::sys::guard::{Guard, run_down};
use crate::sys::rundown::Rundown;
use crate::wire::bytes::{Fault, Place, Segment};

/// The kind of object that an entry describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Region,
    /// A window of type 1, which any QP of the domain can use.
    Window1,
    /// A window of type 2, which only the QP with this number can use.
    Window2(u32),
}

/// The data that accesses are checked against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) key: u32,
    pub(super) domain: u32,
    pub(super) kind: Kind,
    pub(super) access: Access,
    /// The first byte, and its I/O virtual address.
    pub(super) place: Place,
    pub(super) iova: u64,
    pub(super) length: u64,
}

/// A slot of the table.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Slot {
    rundown: Rundown,
    entry: UnsafeCell<Entry>,
    index: u32,
    /// The number of windows bound to this region, which grows only while a `Hold` exists.
    pub(super) bound: AtomicU32,
    /// The window, if the entry describes a window.
    pub(super) window: Mutex<Weak<Window>>,
}

// SAFETY: `entry` is read by owners of a `Hold` and changed by the owner of the `Closed`. A `Closed` is created only
// when no `Hold` exists, and no `Hold` is created while the `Closed` exists. Pointers in the entry are plain values
// until an access dereferences them.
unsafe impl Sync for Slot {}
// SAFETY: as above.
unsafe impl Send for Slot {}

impl Slot {
    /// Creates a closed slot, whose key is invalid until it is opened.
    pub(super) fn new(index: u32) -> Self {
        // The first variant is random, so a key that a program has stored during an earlier run is probably invalid.
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

    /// Returns the exclusive right to a new slot, which is closed.
    ///
    /// # Safety
    ///
    /// The function is called once for each slot.
    pub(super) unsafe fn first(&'static self) -> Closed {
        Closed(self)
    }

    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// Begins a use of the entry, which stays open until the use ends. Returns `None` if the entry is closed.
    #[inline]
    pub(super) fn enter(&'static self) -> Option<Hold> {
        Guard::enter(&self.rundown).map(|guard| Hold { slot: self, guard })
    }

    /// Closes the entry and waits until its users are gone. Returns `None` if the entry is already closed.
    pub(super) fn close(&'static self) -> Option<Closed> {
        run_down(&self.rundown).then_some(Closed(self))
    }
}

/// A guard that keeps an entry open and unchanged until the guard is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    slot: &'static Slot,
    guard: Guard,
}

impl Hold {
    pub(super) fn slot(&self) -> &'static Slot {
        self.slot
    }

    /// Returns the `length` bytes of the entry's memory that start at `address`.
    #[inline]
    pub(super) fn segment(self, address: u64, length: u64) -> Result<Segment, Fault> {
        let offset = address.checked_sub(self.iova).ok_or(Fault::Bounds)?;
        if offset > self.length || length > self.length - offset {
            return Err(Fault::Bounds);
        }
        let offset = usize::try_from(offset).map_err(|_| Fault::Bounds)?;
        let length = usize::try_from(length).map_err(|_| Fault::Bounds)?;
        // SAFETY: the bytes belong to the entry, are registered for use by any thread, and stay mapped until the guard
        // is dropped.
        Ok(unsafe { Segment::guarded(self.place.offset(offset), length, self.guard) })
    }
}

impl Deref for Hold {
    type Target = Entry;

    #[inline]
    fn deref(&self) -> &Entry {
        // SAFETY: the entry changes only after all `Hold`s are dropped. The Acquire load of `enter` has read the
        // Release store of `Closed::open`, so the entry is visible.
        unsafe { &*self.slot.entry.get() }
    }
}

/// The exclusive right to a closed entry.
#[derive(Debug)]
pub(super) struct Closed(&'static Slot);

impl Closed {
    pub(super) fn slot(&self) -> &'static Slot {
        self.0
    }

    pub(super) fn entry(&self) -> Entry {
        // SAFETY: no other thread accesses the entry while this `Closed` exists.
        unsafe { *self.0.entry.get() }
    }

    /// Changes the key of the entry, which stays closed.
    pub(super) fn set_key(&mut self, key: u32) {
        // SAFETY: as above, with exclusive access.
        unsafe { (*self.0.entry.get()).key = key };
    }

    /// Sets the next key of the slot, which has the same index but another variant.
    pub(super) fn renew(&mut self) {
        let key = self.entry().key;
        self.set_key(key & !0xff | key.wrapping_add(1) & 0xff);
    }

    /// Opens the entry for accesses.
    pub(super) fn open(self, entry: Entry) {
        // SAFETY: as for `set_key`.
        unsafe { *self.0.entry.get() = entry };
        self.0.rundown.open();
    }
}
