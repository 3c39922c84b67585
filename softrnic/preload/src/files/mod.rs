//! The files of soft devices in `/sys` and `/dev`, for programs that read these files in addition to using the C API.
//! UCX, for example, uses a device only if its character device exists, and reads its GID types from sysfs.
//!
//! softrnic describes the files, `tree` creates them in a folder, and the functions of this file interpose those of the
//! C library: each replaces a path of a soft device by the path in that folder, and calls the function of the C library.
//! All other paths are passed on unchanged. Because the files are real, all functions that take a descriptor or a `DIR`
//! work without help. `walk` serves the functions that open folders inside the C library.

mod tree;
mod walk;

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{DIR, FILE, dirent, dirent64, mode_t, size_t, ssize_t};

use crate::register;

/// The path to pass to the C library.
struct Path {
    given: *const c_char,
    redirected: Option<CString>,
}

impl Path {
    /// Determines the path. Paths that the system's libraries and this library use are not redirected: they have no
    /// drivers for soft devices.
    ///
    /// # Safety
    ///
    /// `given` is null or a C string that outlives the result.
    unsafe fn new(given: *const c_char) -> Self {
        let path = if given.is_null() {
            None
        } else {
            // SAFETY: the pointer is not null; the rest is guaranteed by the caller.
            Some(unsafe { CStr::from_ptr(given) })
        };
        let path = path.filter(|path| tree::may_be_ours(path.to_bytes()) && !register::is_inside());
        Self { given, redirected: path.and_then(tree::redirect) }
    }

    fn as_ptr(&self) -> *const c_char {
        self.redirected.as_ref().map_or(self.given, |path| path.as_ptr())
    }
}

/// Returns the function of the C library.
pub(crate) fn next(cache: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = cache.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    cache.store(found, Ordering::Relaxed);
    found
}

/// A result of an interposed function.
trait Outcome: Sized {
    const FAILURE: Self;

    /// Removes the folder of the tree from the result.
    ///
    /// # Safety
    ///
    /// A pointer is what the C library returned for this path.
    unsafe fn shown(self) -> Self {
        self
    }
}

impl Outcome for c_int {
    const FAILURE: Self = -1;
}

impl Outcome for ssize_t {
    const FAILURE: Self = -1;
}

impl Outcome for *mut FILE {
    const FAILURE: Self = ptr::null_mut();
}

impl Outcome for *mut DIR {
    const FAILURE: Self = ptr::null_mut();
}

/// A resolved path.
impl Outcome for *mut c_char {
    const FAILURE: Self = ptr::null_mut();

    unsafe fn shown(self) -> Self {
        if !self.is_null() {
            // SAFETY: the result is a C string that the program may write.
            unsafe { tree::hide(self) };
        }
        self
    }
}

fn without_function<R: Outcome>() -> R {
    // SAFETY: libc returns the address of this thread's errno, which is valid while the thread runs.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    R::FAILURE
}

/// Declares interposed functions. The path to redirect is in braces. If the C library lacks the function, it fails with
/// `ENOSYS`.
///
/// Callers of `open` without `O_CREAT` pass no `mode`. Declaring `mode` is sound nevertheless: variadic arguments are
/// passed like fixed ones, and the C library ignores the mode unless `O_CREAT` is set.
macro_rules! redirected {
    ($(fn $name:ident($($before:ident: $Before:ty,)* {$path:ident} $(, $after:ident: $After:ty)*) -> $Return:ty;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($before: $Before,)* $path: *const c_char $(, $after: $After)*) -> $Return {
            type Function = unsafe extern "C" fn($($Before,)* *const c_char $(, $After)*) -> $Return;
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has a zero byte"),
            };
            let function = next(&NEXT, NAME);
            if function.is_null() {
                return without_function();
            }
            // SAFETY: the C library's function of this name has this type. The caller upholds its contract, and the
            // redirected path lives until it returns.
            unsafe {
                let path = Path::new($path);
                let function = mem::transmute::<*mut c_void, Function>(function);
                let result = function($($before,)* path.as_ptr() $(, $after)*);
                if path.redirected.is_some() { result.shown() } else { result }
            }
        }
    )*};
}

type Filter = Option<unsafe extern "C" fn(*const dirent) -> c_int>;
type Filter64 = Option<unsafe extern "C" fn(*const dirent64) -> c_int>;
type Compare = Option<unsafe extern "C" fn(*mut *const dirent, *mut *const dirent) -> c_int>;
type Compare64 = Option<unsafe extern "C" fn(*mut *const dirent64, *mut *const dirent64) -> c_int>;

redirected! {
    fn open({path}, flags: c_int, mode: mode_t) -> c_int;
    fn open64({path}, flags: c_int, mode: mode_t) -> c_int;
    fn __open_2({path}, flags: c_int) -> c_int;
    fn __open64_2({path}, flags: c_int) -> c_int;
    fn openat(folder: c_int, {path}, flags: c_int, mode: mode_t) -> c_int;
    fn openat64(folder: c_int, {path}, flags: c_int, mode: mode_t) -> c_int;
    fn __openat_2(folder: c_int, {path}, flags: c_int) -> c_int;
    fn __openat64_2(folder: c_int, {path}, flags: c_int) -> c_int;
    fn fopen({path}, mode: *const c_char) -> *mut FILE;
    fn fopen64({path}, mode: *const c_char) -> *mut FILE;

    fn access({path}, mode: c_int) -> c_int;
    fn euidaccess({path}, mode: c_int) -> c_int;
    fn eaccess({path}, mode: c_int) -> c_int;
    fn faccessat(folder: c_int, {path}, mode: c_int, flags: c_int) -> c_int;

    fn stat({path}, to: *mut libc::stat) -> c_int;
    fn stat64({path}, to: *mut libc::stat64) -> c_int;
    fn lstat({path}, to: *mut libc::stat) -> c_int;
    fn lstat64({path}, to: *mut libc::stat64) -> c_int;
    fn fstatat(folder: c_int, {path}, to: *mut libc::stat, flags: c_int) -> c_int;
    fn fstatat64(folder: c_int, {path}, to: *mut libc::stat64, flags: c_int) -> c_int;
    fn statx(folder: c_int, {path}, flags: c_int, mask: c_uint, to: *mut c_void) -> c_int;
    // Programs that were built for a glibc before 2.33 call these functions for those of the `stat` family.
    fn __xstat(version: c_int, {path}, to: *mut libc::stat) -> c_int;
    fn __xstat64(version: c_int, {path}, to: *mut libc::stat64) -> c_int;
    fn __lxstat(version: c_int, {path}, to: *mut libc::stat) -> c_int;
    fn __lxstat64(version: c_int, {path}, to: *mut libc::stat64) -> c_int;
    fn __fxstatat(version: c_int, folder: c_int, {path}, to: *mut libc::stat, flags: c_int) -> c_int;
    fn __fxstatat64(version: c_int, folder: c_int, {path}, to: *mut libc::stat64, flags: c_int) -> c_int;

    fn readlink({path}, to: *mut c_char, size: size_t) -> ssize_t;
    fn readlinkat(folder: c_int, {path}, to: *mut c_char, size: size_t) -> ssize_t;
    fn __readlink_chk({path}, to: *mut c_char, size: size_t, space: size_t) -> ssize_t;
    fn __readlinkat_chk(folder: c_int, {path}, to: *mut c_char, size: size_t, space: size_t) -> ssize_t;

    // `ls -l` asks for the attributes of each file.
    fn getxattr({path}, name: *const c_char, to: *mut c_void, size: size_t) -> ssize_t;
    fn lgetxattr({path}, name: *const c_char, to: *mut c_void, size: size_t) -> ssize_t;
    fn listxattr({path}, to: *mut c_char, size: size_t) -> ssize_t;
    fn llistxattr({path}, to: *mut c_char, size: size_t) -> ssize_t;

    // Afterwards, relative paths lead to files of the tree without redirection.
    fn chdir({path}) -> c_int;
    fn opendir({path}) -> *mut DIR;
    fn scandir({path}, list: *mut *mut *mut dirent, filter: Filter, compare: Compare) -> c_int;
    fn scandir64({path}, list: *mut *mut *mut dirent64, filter: Filter64, compare: Compare64) -> c_int;

    fn realpath({path}, to: *mut c_char) -> *mut c_char;
    fn __realpath_chk({path}, to: *mut c_char, space: size_t) -> *mut c_char;
    fn canonicalize_file_name({path}) -> *mut c_char;
}
