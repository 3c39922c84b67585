//! Which Rust object stands behind a C object that an event names.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Objects by the address of what C knows them by.
pub(crate) struct Registry<T>(Mutex<BTreeMap<usize, Weak<T>>>);

/// What stands behind an address.
#[derive(Debug)]
pub(crate) enum Found<T> {
    /// An object, which now stays.
    Object(Arc<T>),
    /// An object that has lost its last owner and is being destroyed, or that the driver refused to destroy.
    Leaving,
    /// An object that other code has made, or none.
    Foreign,
}

impl<T> Registry<T> {
    /// Enters a new object.
    pub(crate) fn insert<C>(&self, raw: NonNull<C>, object: &Arc<T>) {
        self.lock().insert(raw.as_ptr().addr(), Arc::downgrade(object));
    }

    /// Takes an object out, once its C object is destroyed. Until then an event can name it: it is found as
    /// [`Leaving`](Found::Leaving).
    pub(crate) fn remove<C>(&self, raw: NonNull<C>) {
        let address = raw.as_ptr().addr();
        let mut objects = self.lock();
        // The next object may have the address already, and be here.
        if let Entry::Occupied(object) = objects.entry(address)
            && object.get().strong_count() == 0
        {
            object.remove();
        }
    }

    /// Takes this object out, and no other, of which no event comes here any more: it lives elsewhere, or its C object is
    /// destroyed.
    pub(crate) fn move_out<C>(&self, raw: NonNull<C>, object: *const T) {
        let address = raw.as_ptr().addr();
        let mut objects = self.lock();
        if objects.get(&address).is_some_and(|entered| entered.as_ptr() == object) {
            objects.remove(&address);
        }
    }

    /// What stands behind an address. The C object is known not to have been destroyed yet: the event that names it is not
    /// acknowledged.
    pub(crate) fn find<C>(&self, raw: *const C) -> Found<T> {
        match self.lock().get(&raw.addr()).map(Weak::upgrade) {
            Some(Some(object)) => Found::Object(object),
            Some(None) => Found::Leaving,
            None => Found::Foreign,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Weak<T>>> {
        // Nothing panics under the lock, and a map that was left whole is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> fmt::Debug for Registry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} objects", self.lock().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_leaves_makes_room_for_the_next_and_does_not_take_it_along() {
        let place = 0_u32;
        let raw = NonNull::from(&place);
        let registry = Registry::default();
        assert!(matches!(registry.find(raw.as_ptr()), Found::Foreign));
        let first = Arc::new("first");
        registry.insert(raw, &first);
        assert!(matches!(registry.find(raw.as_ptr()), Found::Object(object) if *object == "first"));
        drop(first);
        assert!(matches!(registry.find(raw.as_ptr()), Found::Leaving));
        // The C library has freed the first, and gives the address to a second before the first is taken out.
        let second = Arc::new("second");
        registry.insert(raw, &second);
        registry.remove(raw);
        assert!(matches!(registry.find(raw.as_ptr()), Found::Object(object) if *object == "second"));
        drop(second);
        registry.remove(raw);
        assert!(matches!(registry.find(raw.as_ptr()), Found::Foreign));
    }

    #[test]
    fn an_object_that_moves_out_is_foreign_and_takes_no_other_along() {
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
    fn an_object_that_has_gone_does_not_take_the_next_along_that_leaves() {
        let place = 0_u32;
        let raw = NonNull::from(&place);
        let registry = Registry::default();
        let first = Arc::new("first");
        registry.insert(raw, &first);
        // The C library has freed the first, and gave the address to a second, which has lost its last owner.
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
