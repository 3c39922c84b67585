//! The files that programs look for beside the C API: UCX takes a device only if it finds its character device in `/dev/infiniband`, and
//! reads the types of its GIDs from sysfs.
//!
//! These functions of the C library stand before its own, look at the path, and answer for soft devices; every other path goes on to
//! the C library. They hold nothing: no file is written anywhere.

use std::ffi::{CStr, c_char, c_int};
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{FromRawFd, IntoRawFd};

use libc::{AT_FDCWD, mode_t};

/// A character device that any user may read and write.
const STANDS_IN: &CStr = c"/dev/null";

/// The path, or that of the file which stands in for a soft device.
///
/// # Safety
///
/// `path` is null or a C string, which outlives the result.
unsafe fn looked_at(path: *const c_char) -> *const c_char {
    // SAFETY: the caller's promise.
    match unsafe { below(path, "/dev/infiniband/") } {
        Some(name) if softrnic::is_device_file(name) => STANDS_IN.as_ptr(),
        _ => path,
    }
}

/// A file descriptor of an attribute of a soft device; `None` for every other path.
///
/// # Safety
///
/// As of [`looked_at`].
unsafe fn attribute(path: *const c_char, flags: c_int) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let text = softrnic::attribute_file(unsafe { below(path, "/sys/class/infiniband/") }?)?;
    let close_on_exec = if flags & libc::O_CLOEXEC == 0 { 0 } else { libc::MFD_CLOEXEC };
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"softrnic".as_ptr(), close_on_exec) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the descriptor is new and nobody else's.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(text.as_bytes()).and_then(|()| file.rewind()).ok()?;
    Some(file.into_raw_fd())
}

/// The path if it begins so; then the devices are registered.
///
/// # Safety
///
/// As of [`looked_at`].
unsafe fn below<'a>(path: *const c_char, folder: &str) -> Option<&'a CStr> {
    if path.is_null() {
        return None;
    }
    // SAFETY: it is not null; the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    if !path.to_bytes().starts_with(folder.as_bytes()) {
        return None;
    }
    crate::register::ready();
    Some(path)
}

/// Variable arguments are passed as others are: a caller that gives no mode has none read.
#[unsafe(no_mangle)]
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller keeps the contract of the C function.
    unsafe { attribute(path, flags).unwrap_or_else(|| libc::openat(AT_FDCWD, path, flags, mode)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller keeps the contract of the C function.
    unsafe { attribute(path, flags).unwrap_or_else(|| libc::openat64(AT_FDCWD, path, flags, mode)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller keeps the contract of the C function.
    unsafe { libc::faccessat(AT_FDCWD, looked_at(path), mode, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn stat(path: *const c_char, to: *mut libc::stat) -> c_int {
    // SAFETY: the caller keeps the contract of the C function.
    unsafe { libc::fstatat(AT_FDCWD, looked_at(path), to, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn stat64(path: *const c_char, to: *mut libc::stat64) -> c_int {
    // SAFETY: the caller keeps the contract of the C function.
    unsafe { libc::fstatat64(AT_FDCWD, looked_at(path), to, 0) }
}

/// What `stat` is in programs that were built for glibc before 2.33.
#[unsafe(no_mangle)]
unsafe extern "C" fn __xstat(_version: c_int, path: *const c_char, to: *mut libc::stat) -> c_int {
    // SAFETY: the caller keeps the contract of the C function.
    unsafe { stat(path, to) }
}
