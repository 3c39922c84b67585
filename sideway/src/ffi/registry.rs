//! Finds the Rust object for a C object that an event names.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Objects by the address of their C object.
pub(crate) struct Registry<T: ?Sized>(Mutex<BTreeMap<usize, Weak<T>>>);

/// The result of looking up an address.
#[derive(Debug)]
pub(crate) enum Found<T: ?Sized> {
    /// A live object, kept alive by this reference.
    Object(Arc<T>),
    /// An object without owners, which is being destroyed or whose destruction failed.
    Leaving,
    /// There is no object at the address, or this crate did not create it.
    Foreign,
}

impl<T: ?Sized> Registry<T> {
    /// Adds a new object.
    pub(crate) fn insert<C>(&self, raw: NonNull<C>, object: &Arc<T>) {
        self.lock().insert(raw.as_ptr().addr(), Arc::downgrade(object));
    }

    /// Removes an object after its C object was destroyed. Until then an event may name the object, and
    /// [`find`](Self::find) then returns [`Leaving`](Found::Leaving).
    pub(crate) fn remove<C>(&self, raw: NonNull<C>) {
        let address = raw.as_ptr().addr();
        let mut objects = self.lock();
        // A new object may already have been registered at this address, so the entry is checked first.
        if let Entry::Occupied(object) = objects.entry(address)
            && object.get().strong_count() == 0
        {
            object.remove();
        }
    }

    /// Removes this object, but not another one at the same address. Call this when no more events for the object can
    /// arrive here, because it moved to another channel or its C object was destroyed.
    pub(crate) fn move_out<C>(&self, raw: NonNull<C>, object: *const T) {
        let address = raw.as_ptr().addr();
        let mut objects = self.lock();
        if objects.get(&address).is_some_and(|entered| ptr::addr_eq(entered.as_ptr(), object)) {
            objects.remove(&address);
        }
    }

    /// Looks up an address. The C object cannot have been destroyed yet, because the event that names it is not
    /// acknowledged.
    pub(crate) fn find<C>(&self, raw: *const C) -> Found<T> {
        match self.lock().get(&raw.addr()).map(Weak::upgrade) {
            Some(Some(object)) => Found::Object(object),
            Some(None) => Found::Leaving,
            None => Found::Foreign,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Weak<T>>> {
        // Nothing panics under the lock, so a poisoned map is still consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Default for Registry<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: ?Sized> fmt::Debug for Registry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} objects", self.lock().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_object_keeps_next_at_same_address() {
        let place = 0_u32;
        let raw = NonNull::from(&place);
        let registry = Registry::default();
        assert!(matches!(registry.find(raw.as_ptr()), Found::Foreign));
        let first = Arc::new("first");
        registry.insert(raw, &first);
        assert!(matches!(registry.find(raw.as_ptr()), Found::Object(object) if *object == "first"));
        drop(first);
        assert!(matches!(registry.find(raw.as_ptr()), Found::Leaving));
        // The C library has freed the first object and reuses its address, and the first object's entry has not been
        // removed yet.
        let second = Arc::new("second");
        registry.insert(raw, &second);
        registry.remove(raw);
        assert!(matches!(registry.find(raw.as_ptr()), Found::Object(object) if *object == "second"));
        drop(second);
        registry.remove(raw);
        assert!(matches!(registry.find(raw.as_ptr()), Found::Foreign));
    }

    #[test]
    fn moved_out_object_is_foreign_and_keeps_others() {
        let place = 0_u32;
        let raw = NonNull::from(&place);
        let (here, there) = (Registry::default(), Registry::default());
        let object = Arc::new("object");
        here.insert(raw, &object);
        there.insert(raw, &object);
        here.move_out(raw, Arc::as_ptr(&Arc::new("object")));
        assert!(matches!(here.find(raw.as_ptr()), Found::Object(_)));
        here.move_out(raw, Arc::as_ptr(&object));
        assert!(matches!(here.find(raw.as_ptr()), Found::Foreign));
        assert!(matches!(there.find(raw.as_ptr()), Found::Object(found) if Arc::ptr_eq(&found, &object)));
    }

    #[test]
    fn dead_object_removal_keeps_dead_successor() {
        let place = 0_u32;
        let raw = NonNull::from(&place);
        let registry = Registry::default();
        let first = Arc::new("first");
        registry.insert(raw, &first);
        // The C library has freed the first object and reused its address for a second one, which has no owner left
        // either.
        let second = Arc::new("second");
        registry.insert(raw, &second);
        let (gone, leaving) = (Arc::as_ptr(&first), Arc::as_ptr(&second));
        let still_there = Arc::downgrade(&second);
        drop(second);
        registry.move_out(raw, gone);
        assert!(matches!(registry.find(raw.as_ptr()), Found::Leaving));
        registry.move_out(raw, leaving);
        assert!(matches!(registry.find(raw.as_ptr()), Found::Foreign));
        drop(still_there);
    }
}
