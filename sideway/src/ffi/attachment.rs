//! What has the address of an object that it does not own.

use std::fmt::Debug;
use std::ptr::NonNull;

/// Something in C that has the address of a `T` and uses it by itself, as a connection identifier does with its queue pair.
pub(crate) trait Attachment<T>: Debug + Send + Sync {
    /// Makes it forget the object, which is about to be destroyed.
    fn detach(&self, object: NonNull<T>);

    /// Calls `run` once, while it does not use the object.
    fn apart(&self, run: &mut dyn FnMut());
}
