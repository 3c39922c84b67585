//! Objects of the C API. An object starts with its C struct. It is on the heap from the verb that creates it to the
//! verb that destroys it.

/// An object that starts with the C struct `C`.
///
/// # Safety
///
/// The type is `repr(C)`, and its first field is a `C` or a struct that starts with one.
pub(crate) unsafe trait Object: Sized {
    /// The C struct, to which the program has a pointer.
    type C;

    /// Moves the object to the heap and returns its C pointer.
    fn into_c(self) -> *mut Self::C {
        Box::into_raw(Box::new(self)).cast()
    }

    /// Returns the object of a C pointer.
    ///
    /// # Safety
    ///
    /// `object` came from [`into_c`](Self::into_c) of this type, and is not destroyed during the lifetime of the
    /// reference.
    unsafe fn of<'o>(object: *mut Self::C) -> &'o Self {
        // SAFETY: guaranteed by the caller: `object` points to a `Self`, which starts with the C struct.
        unsafe { &*object.cast::<Self>() }
    }

    /// Takes ownership back from C, to destroy the object.
    ///
    /// # Safety
    ///
    /// As for [`of`](Self::of), and the object is no longer used.
    unsafe fn from_c(object: *mut Self::C) -> Box<Self> {
        // SAFETY: guaranteed by the caller: `into_c` put the object on the heap, and the object is no longer used.
        unsafe { Box::from_raw(object.cast::<Self>()) }
    }
}
