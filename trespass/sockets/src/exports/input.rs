//! Functions that receive.

use std::ffi::{c_int, c_void};
use std::io::IoSliceMut;
use std::slice;
use std::sync::Arc;

use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::{MOST_BYTES, MOST_PARTS, count, fail, parts};
use crate::stream::{Manner, Stream};

/// How many bytes are discarded at once.
const CHUNK: usize = 128 << 10;

/// Receives into one buffer.
///
/// # Safety
///
/// `to` has space for `length` bytes.
unsafe fn receive(stream: &Arc<Stream>, to: *mut c_void, length: size_t, flags: c_int) -> ssize_t {
    if flags & libc::MSG_TRUNC != 0 {
        return discard(stream, length, flags);
    }
    if to.is_null() || length > isize::MAX as usize {
        return if length == 0 { 0 } else { fail(libc::EFAULT) };
    }
    // SAFETY: guaranteed by the caller. Programs may pass memory that is not initialised; it is only written.
    let bytes = unsafe { slice::from_raw_parts_mut(to.cast::<u8>(), length.min(MOST_BYTES)) };
    receive_parts(stream, &mut [IoSliceMut::new(bytes)], flags)
}

fn receive_parts(stream: &Arc<Stream>, parts: &mut [IoSliceMut<'_>], flags: c_int) -> ssize_t {
    if flags & libc::MSG_ERRQUEUE != 0 {
        return fail(libc::EAGAIN);
    }
    if flags & libc::MSG_OOB != 0 {
        return fail(libc::EINVAL);
    }
    let manner = Manner {
        never_waits: flags & libc::MSG_DONTWAIT != 0,
        waits_for_all: flags & libc::MSG_WAITALL != 0,
        peeks: flags & libc::MSG_PEEK != 0,
    };
    count(stream.read(parts, manner))
}

/// Receives bytes that the program does not want, as TCP does for `MSG_TRUNC`.
fn discard(stream: &Arc<Stream>, length: size_t, flags: c_int) -> ssize_t {
    let mut bytes = vec![0; length.min(CHUNK)];
    let mut total = 0;
    while total < length {
        let most = bytes.len().min(length - total);
        let waits = if total == 0 || flags & libc::MSG_WAITALL != 0 { 0 } else { libc::MSG_DONTWAIT };
        let result = receive_parts(stream, &mut [IoSliceMut::new(&mut bytes[..most])], flags | waits);
        let Ok(received) = usize::try_from(result) else { return if total == 0 { result } else { total as ssize_t } };
        total += received;
        if received < most || flags & libc::MSG_PEEK != 0 {
            break;
        }
    }
    total as ssize_t
}

/// Receives into several buffers.
///
/// # Safety
///
/// The list has `count` parts, each with its bytes.
pub(super) unsafe fn receive_list(stream: &Arc<Stream>, list: *const iovec, count: usize, flags: c_int) -> ssize_t {
    // SAFETY: guaranteed by the caller.
    let parts = match unsafe { parts(list, count) } {
        Ok(parts) => parts,
        Err(number) => return fail(number),
    };
    if flags & libc::MSG_TRUNC != 0 {
        return discard(stream, parts.iter().map(|part| part.iov_len).sum(), flags);
    }
    // SAFETY: guaranteed by the caller; the parts are checked.
    let slice = |part: iovec| IoSliceMut::new(unsafe { slice::from_raw_parts_mut(part.iov_base.cast(), part.iov_len) });
    receive_parts(stream, &mut parts.into_iter().map(slice).collect::<Vec<_>>(), flags)
}

replace! {
    fn read(fd: c_int, to: *mut c_void, count: size_t) -> ssize_t, stream => receive(&stream, to, count, 0)
}

replace! {
    fn readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t,
    stream => receive_list(&stream, list, count as usize, 0)
}

replace! {
    fn recv(fd: c_int, to: *mut c_void, count: size_t, flags: c_int) -> ssize_t,
    stream => receive(&stream, to, count, flags)
}

replace! {
    fn recvfrom(
        fd: c_int, to: *mut c_void, count: size_t, flags: c_int, from: *mut sockaddr, length: *mut socklen_t
    ) -> ssize_t,
    stream => {
        // As TCP, which stores no address.
        if !from.is_null() && !length.is_null() {
            *length = 0;
        }
        receive(&stream, to, count, flags)
    }
}

replace! {
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t,
    stream => {
        let Some(message) = message.as_mut() else { return fail(libc::EFAULT) };
        (message.msg_namelen, message.msg_controllen, message.msg_flags) = (0, 0, 0);
        match message.msg_iovlen {
            0..=MOST_PARTS => receive_list(&stream, message.msg_iov, message.msg_iovlen, flags),
            _ => fail(libc::EMSGSIZE),
        }
    }
}

/// Defines the form of a function in programs that were compiled with `_FORTIFY_SOURCE`, which gets the buffer's size.
macro_rules! checked {
    ($(fn $name:ident as $plain:ident($($more:ident: $type:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            fd: c_int, to: *mut c_void, count: size_t, space: size_t $(, $more: $type)*
        ) -> ssize_t {
            // SAFETY: guaranteed by the caller.
            unsafe { $plain(fd, to, checked(count, space) $(, $more)*) }
        }
    )*};
}

checked! {
    fn __read_chk as read();
    fn __recv_chk as recv(flags: c_int);
    fn __recvfrom_chk as recvfrom(flags: c_int, from: *mut sockaddr, length: *mut socklen_t);
}

/// The C library ends a program whose buffer is too small.
fn checked(count: size_t, space: size_t) -> size_t {
    if count > space {
        std::process::abort();
    }
    count
}
