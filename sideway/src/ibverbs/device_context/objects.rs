//! The objects of a device context that its events can name.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use crate::ffi::{Found, Registry};

/// The objects of one device context that can be named in its events, of any type.
///
/// The user contexts of C (`qp_context` and others) cannot replace this map, because other code may create objects on
/// the same device context. The map does not contain the addresses of those objects.
#[derive(Debug, Default)]
pub(crate) struct AffiliatedObjects {
    objects: Registry<dyn Any + Send + Sync>,
    /// This lock is held while a thread takes an event.
    pub(crate) taking: Mutex<()>,
}

impl AffiliatedObjects {
    /// Adds a new object.
    pub(crate) fn insert<C, T: Any + Send + Sync>(&self, raw: NonNull<C>, object: &Arc<T>) {
        let object: Arc<dyn Any + Send + Sync> = Arc::<T>::clone(object);
        self.objects.insert(raw, &object);
    }

    /// Removes an object after its C object was destroyed.
    pub(crate) fn remove<C>(&self, raw: NonNull<C>) {
        self.objects.remove(raw);
    }

    /// Looks up the address of an object that an event names, which is not acknowledged yet.
    pub(crate) fn find<C, T: Any + Send + Sync>(&self, raw: *const C) -> Found<T> {
        match self.objects.find(raw) {
            Found::Object(object) => object.downcast().map_or(Found::Foreign, Found::Object),
            Found::Leaving => Found::Leaving,
            Found::Foreign => Found::Foreign,
        }
    }
}
