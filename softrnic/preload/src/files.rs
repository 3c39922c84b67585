//! The device files of soft devices, for programs that read these files in addition to using the C API. UCX uses a
//! device only if its character device exists in `/dev/infiniband`, and reads its GID types from sysfs.
//!
//! These functions interpose those of the C library. Each function handles the paths of soft devices itself, and
//! forwards all other paths to the C library. The functions write no files and have no state.

use std::ffi::{CStr, c_char, c_int};
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{FromRawFd, IntoRawFd};

use libc::{AT_FDCWD, mode_t};

/// A character device that any user may read and write.
const STAND_IN: &CStr = c"/dev/null";

/// If `path` is the character device of a soft device, returns the path of a substitute. Otherwise returns `path`.
///
/// # Safety
///
/// `path` is null or a C string that outlives the result.
unsafe fn redirect(path: *const c_char) -> *const c_char {
    // SAFETY: guaranteed by the caller.
    match unsafe { registered_path(path, "/dev/infiniband/") } {
        Some(name) if softrnic::is_device_file(name) => STAND_IN.as_ptr(),
        _ => path,
    }
}

/// If `path` is an attribute file of a soft device, opens a file that contains the text of the attribute. Returns
/// `None` for every other path.
///
/// # Safety
///
/// As for [`redirect`].
unsafe fn attribute(path: *const c_char, flags: c_int) -> Option<c_int> {
    // SAFETY: guaranteed by the caller.
    let text = softrnic::attribute_file(unsafe { registered_path(path, "/sys/class/infiniband/") }?)?;
    let close_on_exec = if flags & libc::O_CLOEXEC == 0 { 0 } else { libc::MFD_CLOEXEC };
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"softrnic".as_ptr(), close_on_exec) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the descriptor is new, and only this function owns it.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(text.as_bytes()).and_then(|()| file.rewind()).ok()?;
    Some(file.into_raw_fd())
}

/// If `path` starts with `folder`, registers the devices and returns `path`.
///
/// # Safety
///
/// As for [`redirect`].
unsafe fn registered_path<'a>(path: *const c_char, folder: &str) -> Option<&'a CStr> {
    if path.is_null() {
        return None;
    }
    // SAFETY: `path` is not null; the rest is guaranteed by the caller.
    let path = unsafe { CStr::from_ptr(path) };
    if !path.to_bytes().starts_with(folder.as_bytes()) {
        return None;
    }
    crate::register::ready();
    Some(path)
}

/// Callers without `O_CREAT` pass no `mode`. Declaring `mode` is sound nevertheless: variadic arguments are passed like
/// fixed ones, and `openat` ignores the mode unless `O_CREAT` is set.
#[unsafe(no_mangle)]
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller upholds the contract of the C function.
    unsafe { attribute(path, flags).unwrap_or_else(|| libc::openat(AT_FDCWD, path, flags, mode)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller upholds the contract of the C function.
    unsafe { attribute(path, flags).unwrap_or_else(|| libc::openat64(AT_FDCWD, path, flags, mode)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller upholds the contract of the C function.
    unsafe { libc::faccessat(AT_FDCWD, redirect(path), mode, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn stat(path: *const c_char, to: *mut libc::stat) -> c_int {
    // SAFETY: the caller upholds the contract of the C function.
    unsafe { libc::fstatat(AT_FDCWD, redirect(path), to, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn stat64(path: *const c_char, to: *mut libc::stat64) -> c_int {
    // SAFETY: the caller upholds the contract of the C function.
    unsafe { libc::fstatat64(AT_FDCWD, redirect(path), to, 0) }
}

/// The function that programs call for `stat` if they were built for a glibc before 2.33.
#[unsafe(no_mangle)]
unsafe extern "C" fn __xstat(_version: c_int, path: *const c_char, to: *mut libc::stat) -> c_int {
    // SAFETY: the caller upholds the contract of the C function.
    unsafe { stat(path, to) }
}
