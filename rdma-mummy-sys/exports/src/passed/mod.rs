//! Forwarding of rsockets, and of the internal functions that rdma-core's libraries and drivers import from libibverbs
//! and librdmacm.
//!
//! Each name forwards to the function of that name in the system's library, whatever its arguments are. If the library
//! is missing, the call fails. Drivers such as libmlx5, which many programs link, fail to load without these names.
//!
//! `names` lists them, `jump` forwards a call with all its arguments, and this file finds the target.

mod jump;
mod names;

use core::ffi::{CStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::{ffi::CString, path::Path};

use rdma_mummy_sys::load::{ibverbs, rdmacm};

use names::{COUNT, Otherwise};

/// The target of each name, set by the first call that finds the library.
static FOUND: [OnceLock<usize>; COUNT] = [const { OnceLock::new() }; COUNT];

/// Returns the target of the name at `index`.
extern "C" fn rdma_mummy_target(index: usize) -> usize {
    let Some((slot, entry)) = FOUND.get(index).zip(names::at(index)) else { return refuse as *const c_void as usize };
    match slot.get().copied().or_else(|| system(entry.name)) {
        Some(found) => *slot.get_or_init(|| found),
        // The next call tries again: the library may be installed later.
        None => fallback(entry.otherwise),
    }
}

/// Returns the function in the system's library.
fn system(name: &CStr) -> Option<usize> {
    static HANDLES: [OnceLock<usize>; 2] = [const { OnceLock::new() }; 2];
    let kept = |place: &OnceLock<usize>, path: Option<&Path>| {
        place.get().copied().or_else(|| path.and_then(handle).map(|handle| *place.get_or_init(|| handle)))
    };
    let verbs = kept(&HANDLES[0], ibverbs::library().ok().and_then(|library| library.path()));
    let cm = kept(&HANDLES[1], rdmacm::library().ok().and_then(|library| library.path()));
    [verbs, cm].into_iter().flatten().find_map(|handle| {
        // SAFETY: the library of the handle is never closed, and the name is a C string.
        let found = unsafe { libc::dlsym(handle as *mut c_void, name.as_ptr()) } as usize;
        // If this object replaces the library, a lookup through the library's handle still finds the library's
        // function.
        (found != 0).then_some(found)
    })
}

/// Returns a second handle of a loaded library, never closed.
fn handle(path: &Path) -> Option<usize> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: the path is a C string, and the library is already loaded, so no code runs.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) } as usize;
    (handle != 0).then_some(handle)
}

fn fallback(otherwise: Otherwise) -> usize {
    match otherwise {
        Otherwise::Refuse => refuse as *const c_void as usize,
        Otherwise::MinusOne => minus_one as *const c_void as usize,
        #[cfg(feature = "drivers")]
        Otherwise::Null => null as *const c_void as usize,
        Otherwise::Poll => libc::poll as *const c_void as usize,
        Otherwise::Select => libc::select as *const c_void as usize,
    }
}

fn set_errno() {
    // SAFETY: libc returns the address of this thread's errno, which is valid and aligned while the thread runs.
    unsafe { *libc::__errno_location() = libc::EOPNOTSUPP };
}

/// Fails like a function that returns an errno value. Also used for functions without a return value.
extern "C" fn refuse() -> c_int {
    set_errno();
    libc::EOPNOTSUPP
}

/// Fails like a socket function, whatever the width of its result.
extern "C" fn minus_one() -> isize {
    set_errno();
    -1
}

/// Fails like a function that returns a pointer.
#[cfg(feature = "drivers")]
extern "C" fn null() -> *mut c_void {
    set_errno();
    core::ptr::null_mut()
}

/// Whether the objects of a removed device may be destroyed. As in libibverbs, drivers write this variable.
#[cfg(feature = "drivers")]
#[unsafe(no_mangle)]
static mut verbs_allow_disassociate_destroy: bool = false;
