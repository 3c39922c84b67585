//! Functions that send.

use std::ffi::{c_int, c_uint, c_void};
use std::io::{self, IoSlice};
use std::slice;
use std::sync::Arc;

use libc::{iovec, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};

use super::{MOST_BYTES, MOST_PARTS, count, exit, fail, find, number, parts};
use crate::stream::Stream;
use crate::system;
use crate::table::{self, Found};

/// How many bytes of a file are read at once.
const CHUNK: usize = 128 << 10;

fn transmit(stream: &Arc<Stream>, parts: &mut [IoSlice<'_>], flags: c_int) -> ssize_t {
    if flags & libc::MSG_OOB != 0 {
        return fail(libc::EOPNOTSUPP);
    }
    let result = stream.write(parts, flags & libc::MSG_DONTWAIT != 0);
    if result.is_err() {
        exit::stay_if_ending();
    }
    if let Err(error) = &result
        && number(error) == libc::EPIPE
        && flags & libc::MSG_NOSIGNAL == 0
    {
        // SAFETY: the program decides what the signal does, as with TCP.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    count(result)
}

/// Sends one buffer.
///
/// # Safety
///
/// `from` has `length` bytes.
unsafe fn transmit_one(stream: &Arc<Stream>, from: *const c_void, length: size_t, flags: c_int) -> ssize_t {
    if from.is_null() || length > isize::MAX as usize {
        return if length == 0 { 0 } else { fail(libc::EFAULT) };
    }
    // SAFETY: guaranteed by the caller.
    let bytes = unsafe { slice::from_raw_parts(from.cast::<u8>(), length.min(MOST_BYTES)) };
    transmit(stream, &mut [IoSlice::new(bytes)], flags)
}

/// Sends several buffers.
///
/// # Safety
///
/// The list has `count` parts, each with its bytes.
pub(super) unsafe fn transmit_list(stream: &Arc<Stream>, list: *const iovec, count: usize, flags: c_int) -> ssize_t {
    // SAFETY: guaranteed by the caller.
    let parts = match unsafe { parts(list, count) } {
        Ok(parts) => parts,
        Err(number) => return fail(number),
    };
    // SAFETY: guaranteed by the caller; the parts are checked.
    let slice = |part: iovec| IoSlice::new(unsafe { slice::from_raw_parts(part.iov_base.cast(), part.iov_len) });
    transmit(stream, &mut parts.into_iter().map(slice).collect::<Vec<_>>(), flags)
}

replace! {
    fn write(fd: c_int, from: *const c_void, count: size_t) -> ssize_t,
    stream => transmit_one(&stream, from, count, 0)
}

replace! {
    fn writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t,
    stream => transmit_list(&stream, list, count as usize, 0)
}

replace! {
    fn send(fd: c_int, from: *const c_void, count: size_t, flags: c_int) -> ssize_t,
    stream => transmit_one(&stream, from, count, flags)
}

replace! {
    fn sendto(
        fd: c_int, from: *const c_void, count: size_t, flags: c_int, to: *const sockaddr, length: socklen_t
    ) -> ssize_t,
    stream => transmit_one(&stream, from, count, flags)
}

replace! {
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t,
    stream => {
        let Some(message) = message.as_ref() else { return fail(libc::EFAULT) };
        match message.msg_iovlen {
            0..=MOST_PARTS => transmit_list(&stream, message.msg_iov, message.msg_iovlen, flags),
            _ => fail(libc::EMSGSIZE),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
    match find(to) {
        Ok(Some(Found::Stream(stream))) => match table::find(from) {
            Some(Found::Stream(_) | Found::Inherited) => fail(libc::EINVAL),
            // SAFETY: guaranteed by the caller.
            _ => unsafe { copy_file(&stream, from, offset, count) },
        },
        Ok(Some(Found::Inherited)) => fail(libc::EIO),
        Err(number) => fail(number),
        // SAFETY: guaranteed by the caller.
        _ => unsafe { system::sendfile(to, from, offset, count) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile64(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
    // SAFETY: guaranteed by the caller.
    unsafe { sendfile(to, from, offset, count) }
}

/// Copies from a file to a stream.
///
/// # Safety
///
/// `offset` is null or a variable.
unsafe fn copy_file(stream: &Arc<Stream>, from: c_int, offset: *mut off_t, most: size_t) -> ssize_t {
    // SAFETY: guaranteed by the caller.
    let start = if offset.is_null() { unsafe { libc::lseek(from, 0, libc::SEEK_CUR) } } else { unsafe { *offset } };
    if start < 0 {
        return fail(libc::EINVAL);
    }
    let mut bytes = vec![0; most.min(CHUNK)];
    let (mut sent, mut failed) = (0, None);
    while sent < most {
        let length = bytes.len().min(most - sent);
        // SAFETY: the buffer has space for the length.
        let read = unsafe { libc::pread(from, bytes.as_mut_ptr().cast(), length, start + sent as off_t) };
        let Ok(read) = usize::try_from(read) else {
            failed = Some(io::Error::last_os_error());
            break;
        };
        if read == 0 {
            break;
        }
        match usize::try_from(transmit(stream, &mut [IoSlice::new(&bytes[..read])], 0)) {
            Ok(written) => {
                sent += written;
                if written < read {
                    break;
                }
            }
            Err(_) => {
                failed = Some(io::Error::last_os_error());
                break;
            }
        }
    }
    if let Some(error) = failed.filter(|_| sent == 0) {
        return count(Err(error));
    }
    let end = start + sent as off_t;
    // SAFETY: guaranteed by the caller.
    unsafe {
        if offset.is_null() {
            libc::lseek(from, end, libc::SEEK_SET);
        } else {
            *offset = end;
        }
    }
    sent as ssize_t
}

/// Programs that splice can also do without.
#[unsafe(no_mangle)]
unsafe extern "C" fn splice(
    from: c_int,
    from_at: *mut i64,
    to: c_int,
    to_at: *mut i64,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    match (table::find(from), table::find(to)) {
        (Some(Found::Stream(_) | Found::Inherited), _) | (_, Some(Found::Stream(_) | Found::Inherited)) => {
            fail(libc::EINVAL)
        }
        // SAFETY: guaranteed by the caller.
        _ => unsafe { system::splice(from, from_at, to, to_at, count, flags) },
    }
}
