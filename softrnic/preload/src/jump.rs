//! `longjmp` out of a function of this library, such as one that waits for an event when a signal arrives. The jump runs
//! no code of the frames that it removes, so the mark of the thread is removed here.

use std::ffi::{CStr, c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::AtomicPtr;

use crate::files::next;
use crate::register;

/// Declares interposed functions of the C library.
macro_rules! jumps {
    ($($name:ident $c_name:literal,)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(buffer: *mut c_void, value: c_int) -> ! {
            type Function = unsafe extern "C" fn(*mut c_void, c_int) -> !;
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
            const NAME: &CStr = $c_name;
            register::leave();
            let function = next(&NEXT, NAME);
            if function.is_null() {
                // The caller expects that this function does not return.
                std::process::abort();
            }
            // SAFETY: the C library's function of this name has this type, the caller upholds its contract, and this
            // frame has no destructors.
            unsafe { mem::transmute::<*mut c_void, Function>(function)(buffer, value) }
        }
    )*};
}

jumps! {
    longjmp c"longjmp",
    _longjmp c"_longjmp",
    siglongjmp c"siglongjmp",
    // The form in programs that were compiled with `_FORTIFY_SOURCE`.
    __longjmp_chk c"__longjmp_chk",
}
