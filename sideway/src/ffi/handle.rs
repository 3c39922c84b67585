//! Ownership of one C object: its pointer, the verb that destroys it, and its attachments.

use std::fmt::{self, Debug};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use libc::c_int;

use super::check_errno;
use crate::error::VerbError;

/// A C object that is destroyed exactly once: by [`close`](Self::close), which returns an error, or by drop, which logs
/// it.
///
/// If the verb fails, the object is leaked: freeing memory that the device may still use would be worse.
pub(crate) struct Handle<T> {
    raw: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T) -> c_int,
    verb: &'static str,
}

// SAFETY: no object of libibverbs is bound to a thread: "by default all verbs objects are safe for multi-threaded
// access" (ibv_alloc_td(3) of rdma-core). Exceptions are objects of a thread domain, which take no locks, and queues
// created with `IBV_CREATE_CQ_ATTR_SINGLE_THREADED` (ibv_create_cq_ex(3)). These two kinds of objects have types that
// are not `Send` (`ibverbs::single_threaded`, `ibverbs::thread_domain`). Calls that must not interleave, such as the
// steps of a poll or of a batch, take `&mut` in the types above.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as for Send; a shared reference to the handle only returns the pointer.
unsafe impl<T> Sync for Handle<T> {}

impl<T> Handle<T> {
    /// Takes ownership of an object.
    ///
    /// # Safety
    ///
    /// - `raw` is live, and no other code destroys it.
    /// - `destroy` destroys objects of this type, and `verb` is its name.
    pub(crate) unsafe fn new(
        raw: NonNull<T>,
        destroy: unsafe extern "C" fn(*mut T) -> c_int,
        verb: &'static str,
    ) -> Self {
        Self { raw, destroy, verb }
    }

    /// Returns the object's pointer, valid while the handle exists.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.raw.as_ptr()
    }

    /// Returns the object's pointer for public accessors.
    #[inline]
    pub(crate) fn as_non_null(&self) -> NonNull<T> {
        self.raw
    }

    /// Destroys the object.
    ///
    /// # Errors
    ///
    /// The verb's error; the object is then leaked.
    pub(crate) fn close(self) -> Result<(), VerbError> {
        ManuallyDrop::new(self).destroy_now()
    }

    fn destroy_now(&self) -> Result<(), VerbError> {
        // SAFETY: by the contract of `new`, the object is live and `destroy` matches it. The callers of this function
        // call it only once.
        check_errno(self.verb, unsafe { (self.destroy)(self.raw.as_ptr()) })
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        if let Err(error) = self.destroy_now() {
            rdma_mummy_sys::log!(warn, "{error}; the object is leaked");
        }
    }
}

impl<T> Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.raw, f)
    }
}

/// A C object that stores the address of a `T` and uses that address. A connection identifier does so with its queue
/// pair.
pub(crate) trait Attachment<T>: Debug + Send + Sync {
    /// Removes the stored address. It is called before the object is destroyed.
    fn detach(&self, object: NonNull<T>);

    /// Calls `run` once. While `run` executes, this attachment does not use the object.
    fn apart(&self, run: &mut dyn FnMut());
}
