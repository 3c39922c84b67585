//! Owning one C object: the pointer, the verb that destroys it, and what else has its address.

use std::fmt::{self, Debug};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use libc::c_int;

use super::check_errno;
use crate::error::VerbError;

/// A C object that is destroyed once: by [`close`](Self::close), which reports, or by drop, which logs.
///
/// Where the verb refuses, the object is leaked: freeing what the device may still use would be worse.
pub(crate) struct Handle<T> {
    raw: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T) -> c_int,
    verb: &'static str,
}

// SAFETY: no object of libibverbs belongs to a thread, and "by default all verbs objects are safe for multi-threaded
// access" (ibv_alloc_td(3) of rdma-core). That page has the exception, what is made in a thread domain, which takes no
// locks; another is a queue that was asked to take none (`IBV_CREATE_CQ_ATTR_SINGLE_THREADED`, ibv_create_cq_ex(3)).
// Both are in types that do not leave their thread (`ibverbs::single_threaded`, `ibverbs::thread_domain`). What must
// not interleave, such as the steps of a poll or of a batch, is behind `&mut` in the types above.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as for Send; a shared handle gives out the pointer and nothing else.
unsafe impl<T> Sync for Handle<T> {}

impl<T> Handle<T> {
    /// Takes the object over.
    ///
    /// # Safety
    ///
    /// - `raw` is live, and nobody else destroys it.
    /// - `destroy` is the verb for it, and `verb` that verb's name.
    pub(crate) unsafe fn new(
        raw: NonNull<T>,
        destroy: unsafe extern "C" fn(*mut T) -> c_int,
        verb: &'static str,
    ) -> Self {
        Self { raw, destroy, verb }
    }

    /// The object, live as long as the handle.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.raw.as_ptr()
    }

    /// The same for public accessors.
    #[inline]
    pub(crate) fn as_non_null(&self) -> NonNull<T> {
        self.raw
    }

    /// Destroys the object and reports.
    ///
    /// # Errors
    ///
    /// What the verb gave; the object is leaked then.
    pub(crate) fn close(self) -> Result<(), VerbError> {
        ManuallyDrop::new(self).destroy_now()
    }

    fn destroy_now(&self) -> Result<(), VerbError> {
        // SAFETY: by the contract of `new` the object is live and the verb is the one for it; callers run this once.
        check_errno(self.verb, unsafe { (self.destroy)(self.raw.as_ptr()) })
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        if let Err(error) = self.destroy_now() {
            log::warn!("{error}; the object is leaked");
        }
    }
}

impl<T> Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.raw, f)
    }
}

/// Something in C that has the address of a `T` and uses it by itself, as a connection identifier does with its queue pair.
pub(crate) trait Attachment<T>: Debug + Send + Sync {
    /// Makes it forget the object, which is about to be destroyed.
    fn detach(&self, object: NonNull<T>);

    /// Calls `run` once, while it does not use the object.
    fn apart(&self, run: &mut dyn FnMut());
}
