//! rsockets, and what rdma-core's own libraries and drivers take from libibverbs and librdmacm beside the verbs.
//!
//! Each name leads on to the function of the same name of the system's library, whatever its arguments are. Where there is no such
//! library the call fails. A driver such as libmlx5, which many programs link to, does not load without its names; where there is
//! no library it has nothing to drive.
//!
//! `names` lists them, `jump` passes a call on with all its arguments, this file finds where to.

mod jump;
mod names;

use core::ffi::{CStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::{ffi::CString, path::Path};

use rdma_mummy_sys::load::{ibverbs, rdmacm};

use names::{COUNT, Otherwise};

/// Where the calls of a name go, found by the first of them that finds the library there.
static FOUND: [OnceLock<usize>; COUNT] = [const { OnceLock::new() }; COUNT];

/// Where to go on with a call of the name at `index`.
extern "C" fn rdma_mummy_target(index: usize) -> usize {
    let Some((slot, entry)) = FOUND.get(index).zip(names::at(index)) else { return refuse as *const c_void as usize };
    match slot.get().copied().or_else(|| system(entry.name)) {
        Some(found) => *slot.get_or_init(|| found),
        // The next call looks again: the library may come.
        None => fallback(entry.otherwise),
    }
}

/// The function of the system's library.
fn system(name: &CStr) -> Option<usize> {
    static HANDLES: [OnceLock<usize>; 2] = [const { OnceLock::new() }; 2];
    let kept = |place: &OnceLock<usize>, path: Option<&Path>| {
        place.get().copied().or_else(|| path.and_then(handle).map(|handle| *place.get_or_init(|| handle)))
    };
    let verbs = kept(&HANDLES[0], ibverbs::library().ok().and_then(|library| library.path()));
    let cm = kept(&HANDLES[1], rdmacm::library().ok().and_then(|library| library.path()));
    [verbs, cm].into_iter().flatten().find_map(|handle| {
        // SAFETY: the handle is of a library that is never closed, and the name is a string.
        let found = unsafe { libc::dlsym(handle as *mut c_void, name.as_ptr()) } as usize;
        // A library that this object stands in for looks its own names up here as well, but not by its own handle.
        (found != 0).then_some(found)
    })
}

/// A second handle of a library that is loaded, kept for good.
fn handle(path: &Path) -> Option<usize> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: the path is a string, and the library is loaded already: nothing runs.
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
    // SAFETY: libc gives the address of this thread's errno, which is valid and aligned for as long as the thread runs.
    unsafe { *libc::__errno_location() = libc::EOPNOTSUPP };
}

/// Fails as a function that returns an errno value does. Where a function returns nothing, nobody looks.
extern "C" fn refuse() -> c_int {
    set_errno();
    libc::EOPNOTSUPP
}

/// Fails as a function of sockets does, whatever the width of what it returns.
extern "C" fn minus_one() -> isize {
    set_errno();
    -1
}

/// Fails as a function that returns a pointer does.
#[cfg(feature = "drivers")]
extern "C" fn null() -> *mut c_void {
    set_errno();
    core::ptr::null_mut()
}

/// Whether drivers may let objects of a device that is gone be destroyed: theirs to write, as in libibverbs.
#[cfg(feature = "drivers")]
#[unsafe(no_mangle)]
static mut verbs_allow_disassociate_destroy: bool = false;
