//! Objects of the C API: each begins with what C sees, and lies on the heap from the verb that makes it to the one that
//! destroys it.

/// An object that begins with the C struct `C`.
///
/// # Safety
///
/// The type is `repr(C)`, and its first field is a `C`, or a struct that begins with one.
pub(crate) unsafe trait Object: Sized {
    /// What programs have a pointer to.
    type C;

    /// Puts it on the heap, where C has it.
    fn into_c(self) -> *mut Self::C {
        Box::into_raw(Box::new(self)).cast()
    }

    /// What is behind a pointer of C's.
    ///
    /// # Safety
    ///
    /// `object` came from [`into_c`](Self::into_c) of this type and is not destroyed as long as the reference is used.
    unsafe fn of<'o>(object: *mut Self::C) -> &'o Self {
        // SAFETY: the caller's promise: it points to a `Self`, which begins with the C struct.
        unsafe { &*object.cast::<Self>() }
    }

    /// Takes it back from C, which destroys it.
    ///
    /// # Safety
    ///
    /// As for [`of`](Self::of), and nobody uses it any more.
    unsafe fn from_c(object: *mut Self::C) -> Box<Self> {
        // SAFETY: the caller's promise: it was put on the heap by `into_c`, and this is its end.
        unsafe { Box::from_raw(object.cast::<Self>()) }
    }
}
