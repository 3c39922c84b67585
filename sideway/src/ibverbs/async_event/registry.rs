//! Which Rust object stands behind a C object that an event names.

use std::collections::BTreeMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::ibverbs::completion::CompletionQueueCore;
use crate::ibverbs::queue_pair::QueuePairCore;
use crate::ibverbs::shared_receive_queue::SharedReceiveQueueCore;

/// The objects of one device context that its events can name.
///
/// The context pointers that C keeps for its user (`qp_context` and its like) would lead there too, but not for objects that
/// other code has made on the same context: their addresses are simply not found here.
#[derive(Debug, Default)]
pub(crate) struct AffiliatedObjects {
    pub(crate) completion_queues: Registry<CompletionQueueCore>,
    pub(crate) queue_pairs: Registry<QueuePairCore>,
    pub(crate) shared_receive_queues: Registry<SharedReceiveQueueCore>,
}

/// Objects by the address of what C knows them by.
pub(crate) struct Registry<T>(Mutex<BTreeMap<usize, Weak<T>>>);

impl<T> Registry<T> {
    /// Enters a new object.
    pub(crate) fn insert<C>(&self, raw: NonNull<C>, object: &Arc<T>) {
        self.lock().insert(raw.as_ptr().addr(), Arc::downgrade(object));
    }

    /// Takes an object out, before its C object is destroyed: the next one may have its address.
    pub(crate) fn remove<C>(&self, raw: NonNull<C>) {
        self.lock().remove(&raw.as_ptr().addr());
    }

    /// The object, unless it is being destroyed or was never entered.
    pub(crate) fn find<C>(&self, raw: *const C) -> Option<Arc<T>> {
        self.lock().get(&raw.addr())?.upgrade()
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
