//! Memory windows. With a window, requests grant and revoke remote access to a part of a region.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use super::slot::{Closed, Entry, Kind, Slot};
use super::{ATOMIC, Fault, LOCAL_WRITE, MW_BIND, Memory, WINDOW_ACCESS, WRITE, ZERO_BASED};
use crate::mem::domain::Domain;
use crate::sys::errno::Errno;
use crate::sys::unpoisoned;

/// The window that a bind request binds, its new key, and the parameters of the request (`struct ibv_mw_bind_info`).
#[derive(Clone, Debug)]
pub(crate) struct Bind {
    pub(crate) window: Arc<Window>,
    /// The new key of the window. The program selects it for a window of type 2, and the verb selects it for a window
    /// of type 1.
    pub(crate) rkey: u32,
    /// The local key of the region.
    pub(crate) lkey: u32,
    pub(crate) address: u64,
    /// A length of zero unbinds the window.
    pub(crate) length: u64,
    pub(crate) access: u32,
}

/// A memory window, which stays in the table until it is freed.
#[derive(Debug)]
pub(crate) struct Window {
    slot: &'static Slot,
    /// The key of the window before its first bind.
    key: u32,
    domain: u32,
    is_type_2: bool,
    /// Changes of the binding take this lock. Accesses to the memory do not.
    binding: Mutex<Binding>,
}

#[derive(Debug)]
enum Binding {
    Unbound(Closed),
    /// The window is bound to the region of this slot.
    Bound(&'static Slot),
    /// The window is freed.
    Freed,
}

impl Window {
    /// The key of the window before its first bind.
    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    /// Closes the entry of the window and waits until it has no users. Returns `None` if the window is freed.
    fn unbind(&self, binding: &mut MutexGuard<'_, Binding>) -> Option<Closed> {
        match std::mem::replace(&mut **binding, Binding::Freed) {
            Binding::Unbound(closed) => Some(closed),
            Binding::Bound(region) => {
                let closed = self.slot.close();
                region.bound.fetch_sub(1, Ordering::Release);
                closed
            }
            Binding::Freed => None,
        }
    }
}

impl Memory {
    /// Creates an unbound window; `is_type_2` as in `ibv_mw_type`.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if [`MAX_MW`](crate::wire::limits::MAX_MW) windows exist.
    pub(crate) fn window(&'static self, domain: &Arc<Domain>, is_type_2: bool) -> Result<Arc<Window>, Errno> {
        self.windows.count()?;
        let Some(closed) = self.table.take() else {
            self.windows.count_down();
            return Err(Errno::NO_MEMORY);
        };
        let (slot, key) = (closed.slot(), closed.entry().key);
        let binding = Mutex::new(Binding::Unbound(closed));
        let window = Arc::new(Window { slot, key, domain: domain.number(), is_type_2, binding });
        *unpoisoned(slot.window.lock()) = Arc::downgrade(&window);
        Ok(window)
    }

    /// Frees a window, whether or not it is bound, after the current accesses have ended.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the window was freed before.
    pub(crate) fn free_window(&'static self, window: &Arc<Window>) -> Result<(), Errno> {
        let mut binding = unpoisoned(window.binding.lock());
        let closed = window.unbind(&mut binding).ok_or(Errno::INVALID)?;
        *unpoisoned(window.slot.window.lock()) = std::sync::Weak::new();
        self.table.give(closed);
        self.windows.count_down();
        Ok(())
    }

    /// Executes a bind request of the QP `number` in `domain`. This function waits until the current accesses through
    /// the old binding have ended, so the caller must hold no segment.
    ///
    /// # Errors
    ///
    /// Returns the fault of the request (`IBV_WC_MW_BIND_ERR`). The window is then unchanged.
    pub(crate) fn bind(&'static self, domain: &Domain, number: u32, bind: &Bind) -> Result<(), Fault> {
        let window = &*bind.window;
        let mut binding = unpoisoned(window.binding.lock());
        if matches!(*binding, Binding::Freed) || bind.rkey >> 8 != window.slot.index() {
            return Err(Fault::Key);
        }
        if window.domain != domain.number() {
            return Err(Fault::Domain);
        }
        // A window of type 2 must be invalidated before it is bound again. Unlike with type 1, a bind of zero bytes
        // does not unbind the window.
        if window.is_type_2 && (matches!(*binding, Binding::Bound(_)) || bind.length == 0) {
            return Err(Fault::Rights);
        }
        if bind.length == 0 {
            let mut closed = window.unbind(&mut binding).ok_or(Fault::Key)?;
            closed.set_key(bind.rkey);
            *binding = Binding::Unbound(closed);
            return Ok(());
        }
        // This use lasts until the end of the function, so that a concurrent deregistration waits and then reads the
        // new value of `bound`.
        let region = self.enter(bind.lkey)?;
        if region.kind != Kind::Region {
            return Err(Fault::Key);
        }
        if region.domain != domain.number() {
            return Err(Fault::Domain);
        }
        // Only the region determines local access. As in mlx5, a bind accepts the flag for local writes, but the flag
        // has no effect.
        let is_allowed = bind.access & !(WINDOW_ACCESS | LOCAL_WRITE) == 0
            && region.access & MW_BIND != 0
            && region.access & ZERO_BASED == 0
            && (bind.access & (WRITE | ATOMIC) == 0 || region.access & LOCAL_WRITE != 0)
            && (window.is_type_2 || bind.access & ZERO_BASED == 0);
        if !is_allowed {
            return Err(Fault::Rights);
        }
        let offset = bind.address.checked_sub(region.iova).ok_or(Fault::Bounds)?;
        if offset > region.length || bind.length > region.length - offset {
            return Err(Fault::Bounds);
        }
        let entry = Entry {
            key: bind.rkey,
            domain: window.domain,
            kind: if window.is_type_2 { Kind::Window2(number) } else { Kind::Window1 },
            access: bind.access & !LOCAL_WRITE,
            place: region.place.offset(usize::try_from(offset).map_err(|_| Fault::Bounds)?),
            iova: if bind.access & ZERO_BASED != 0 { 0 } else { bind.address },
            length: bind.length,
        };
        let closed = window.unbind(&mut binding).ok_or(Fault::Key)?;
        region.slot().bound.fetch_add(1, Ordering::Relaxed);
        *binding = Binding::Bound(region.slot());
        closed.open(entry);
        Ok(())
    }

    /// Invalidates a key, for a local request or for a peer's send with invalidate to the QP `number` in `domain`. Only
    /// windows of type 2 can be invalidated, and only through the QP that bound the window. This function waits until
    /// the current accesses by this key have ended, so the caller must hold no segment of the window.
    ///
    /// # Errors
    ///
    /// Returns an error if the key is invalid, or if it does not belong to a bound window of type 2.
    pub(crate) fn invalidate(&'static self, domain: &Domain, number: u32, rkey: u32) -> Result<(), Fault> {
        let entry = *self.enter(rkey)?;
        let Kind::Window2(owner) = entry.kind else { return Err(Fault::Rights) };
        if entry.domain != domain.number() || owner != number {
            return Err(Fault::Domain);
        }
        let slot = self.table.find(rkey >> 8).ok_or(Fault::Key)?;
        let window = unpoisoned(slot.window.lock()).upgrade().ok_or(Fault::Key)?;
        let mut binding = unpoisoned(window.binding.lock());
        // The window may have been unbound or bound again since the first check. An entry is open only while the window
        // is bound.
        let is_same = self.enter(rkey)?.kind == entry.kind;
        if !is_same || !matches!(*binding, Binding::Bound(_)) {
            return Err(Fault::Key);
        }
        let closed = window.unbind(&mut binding).ok_or(Fault::Key)?;
        *binding = Binding::Unbound(closed);
        Ok(())
    }
}
