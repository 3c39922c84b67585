//! `glob` and `nftw`, which open folders by functions of the C library that nothing can interpose.
//!
//! `glob` accepts the functions with which to read the file system, so it calls those of this library. `nftw` walks the
//! redirected folder, and passes the original paths to the program.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::AtomicPtr;

use libc::size_t;

use super::{Path, next, tree, without_function};
use crate::register;

/// `GLOB_ALTDIRFUNC` of glibc.
const OWN_FUNCTIONS: c_int = 1 << 9;

/// `glob_t` of glibc.
#[repr(C)]
struct Found {
    count: size_t,
    paths: *mut *mut c_char,
    offset: size_t,
    flags: c_int,
    functions: Functions,
}

/// The functions with which `glob` reads the file system.
#[repr(C)]
#[derive(Clone, Copy)]
struct Functions {
    closedir: *const c_void,
    readdir: *const c_void,
    opendir: *const c_void,
    lstat: *const c_void,
    stat: *const c_void,
}

type OnError = *const c_void;

/// Calls the C library's `glob` with the functions of this library if the pattern may match files of soft devices.
///
/// # Safety
///
/// The contract of `glob`; `function` is that of the C library, and `functions` have the types that it calls.
unsafe fn glob_with(
    function: *mut c_void,
    functions: Functions,
    (pattern, flags, on_error, found): (*const c_char, c_int, OnError, *mut Found),
) -> c_int {
    type Function = unsafe extern "C" fn(*const c_char, c_int, OnError, *mut Found) -> c_int;
    if function.is_null() {
        return without_function();
    }
    // SAFETY: guaranteed by the caller. The C library reads the functions of `found` only during the call.
    unsafe {
        let function = mem::transmute::<*mut c_void, Function>(function);
        let is_ours = !register::is_inside() && tree::may_be_ours(CStr::from_ptr(pattern).to_bytes());
        if !is_ours || flags & OWN_FUNCTIONS != 0 {
            return function(pattern, flags, on_error, found);
        }
        let before = (*found).functions;
        (*found).functions = functions;
        let result = function(pattern, flags | OWN_FUNCTIONS, on_error, found);
        (*found).functions = before;
        (*found).flags &= !OWN_FUNCTIONS;
        result
    }
}

thread_local! {
    /// The program's callback of the walk that is in progress in this thread.
    static EACH: Cell<*const c_void> = const { Cell::new(ptr::null()) };
}

/// `struct FTW`.
#[repr(C)]
struct Place {
    base: c_int,
    level: c_int,
}

type EachOfFtw = unsafe extern "C" fn(*const c_char, *const c_void, c_int) -> c_int;
type EachOfNftw = unsafe extern "C" fn(*const c_char, *const c_void, c_int, *mut Place) -> c_int;

/// The callback of `ftw`.
unsafe extern "C" fn ftw_each(path: *const c_char, found: *const c_void, kind: c_int) -> c_int {
    // SAFETY: the program passed a function of this type to `ftw`, which passed a C string.
    unsafe { mem::transmute::<*const c_void, EachOfFtw>(EACH.get())(tree::shown(path), found, kind) }
}

/// The callback of `nftw`.
unsafe extern "C" fn nftw_each(path: *const c_char, found: *const c_void, kind: c_int, place: *mut Place) -> c_int {
    // SAFETY: the program passed a function of this type to `nftw`, which passed a C string and its place.
    unsafe {
        let shown = tree::shown(path);
        let hidden = c_int::try_from(shown.offset_from(path)).unwrap_or_default();
        let mut place = Place { base: (*place).base - hidden, level: (*place).level };
        mem::transmute::<*const c_void, EachOfNftw>(EACH.get())(shown, found, kind, &raw mut place)
    }
}

/// Declares interposed functions that walk a folder, each with the callback for redirected paths.
macro_rules! walks {
    ($(fn $name:ident {$own:ident, $c_name:literal} ($($after:ident: $After:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, each: *const c_void $(, $after: $After)*) -> c_int {
            type Function = unsafe extern "C" fn(*const c_char, *const c_void $(, $After)*) -> c_int;
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
            let function = next(&NEXT, $c_name);
            if function.is_null() {
                return without_function();
            }
            // SAFETY: the C library's function of this name has this type. The caller upholds its contract, and the
            // redirected path lives until it returns.
            unsafe {
                let path = Path::new(path);
                let function = mem::transmute::<*mut c_void, Function>(function);
                if path.redirected.is_none() {
                    return function(path.as_ptr(), each $(, $after)*);
                }
                // The callback may walk another folder.
                let before = EACH.replace(each);
                let result = function(path.as_ptr(), $own as *const c_void $(, $after)*);
                EACH.set(before);
                result
            }
        }
    )*};
}

walks! {
    fn ftw {ftw_each, c"ftw"} (open: c_int);
    fn ftw64 {ftw_each, c"ftw64"} (open: c_int);
    fn nftw {nftw_each, c"nftw"} (open: c_int, flags: c_int);
    fn nftw64 {nftw_each, c"nftw64"} (open: c_int, flags: c_int);
}

/// Declares `glob` for one size of file offsets.
macro_rules! globs {
    ($(fn $name:ident {$c_name:literal} ($readdir:path, $lstat:path, $stat:path);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(pattern: *const c_char, flags: c_int, on_error: OnError, found: *mut Found) -> c_int {
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
            let functions = Functions {
                closedir: libc::closedir as *const c_void,
                readdir: $readdir as *const c_void,
                opendir: super::opendir as *const c_void,
                lstat: $lstat as *const c_void,
                stat: $stat as *const c_void,
            };
            // SAFETY: guaranteed by the caller; the functions are those for this size of file offsets.
            unsafe { glob_with(next(&NEXT, $c_name), functions, (pattern, flags, on_error, found)) }
        }
    )*};
}

globs! {
    fn glob {c"glob"} (libc::readdir, super::lstat, super::stat);
    fn glob64 {c"glob64"} (libc::readdir64, super::lstat64, super::stat64);
}
