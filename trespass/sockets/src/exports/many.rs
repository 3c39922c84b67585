//! Functions for several messages, and those that also take an offset.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{iovec, mmsghdr, msghdr, off_t, ssize_t, timespec};

use super::input::{receive_list, recvmsg};
use super::output::{sendmsg, transmit_list};
use super::{fail, find, parts};
use crate::stream::Stream;
use crate::table::Found;

/// The numbers that the system takes at most in one call.
const MOST: c_uint = 1024;

/// What a descriptor needs.
enum Way {
    Stream(Arc<Stream>),
    Kernel,
    Failure(c_int),
}

fn way(fd: c_int) -> Way {
    match find(fd) {
        Ok(Some(Found::Stream(stream))) => Way::Stream(stream),
        Ok(Some(Found::Inherited)) => Way::Failure(libc::EIO),
        Ok(Some(Found::Listener(_)) | None) => Way::Kernel,
        Err(number) => Way::Failure(number),
    }
}

/// Serves the messages in order until `serve` returns a failure, or true for the last. Returns how many were
/// served, or the failure of the first.
///
/// # Safety
///
/// The list has `count` elements.
unsafe fn each(
    list: *mut mmsghdr,
    count: c_uint,
    mut serve: impl FnMut(c_uint, &mut msghdr) -> (ssize_t, bool),
) -> c_int {
    if list.is_null() && count != 0 {
        return fail(libc::EFAULT);
    }
    for at in 0..count.min(MOST) {
        // SAFETY: guaranteed by the caller.
        let entry = unsafe { &mut *list.add(at as usize) };
        let (bytes, is_last) = serve(at, &mut entry.msg_hdr);
        let Ok(bytes) = c_uint::try_from(bytes) else { return if at == 0 { -1 } else { at as c_int } };
        entry.msg_len = bytes;
        if is_last {
            return at as c_int + 1;
        }
    }
    count.min(MOST) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmmsg(fd: c_int, list: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    let send = |_, message: &mut msghdr| {
        // SAFETY: guaranteed by the caller.
        let sent = unsafe { sendmsg(fd, message, flags) };
        if sent < 0 {
            return (sent, true);
        }
        // SAFETY: guaranteed by the caller.
        let parts = unsafe { parts(message.msg_iov, message.msg_iovlen) }.unwrap_or_default();
        // The bytes of the next message must not follow a part of this one.
        (sent, (sent as usize) < parts.iter().map(|part| part.iov_len).sum())
    };
    match way(fd) {
        // SAFETY: guaranteed by the caller.
        Way::Stream(_) => unsafe { each(list, count, send) },
        Way::Failure(number) => fail(number),
        // SAFETY: guaranteed by the caller.
        Way::Kernel => unsafe { libc::syscall(libc::SYS_sendmmsg, fd, list, count, flags) as c_int },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmmsg(
    fd: c_int,
    list: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    time: *mut timespec,
) -> c_int {
    let begun = Instant::now();
    // SAFETY: guaranteed by the caller.
    let limit = unsafe { time.as_ref() }.map(|time| Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec as u32));
    let receive = |at, message: &mut msghdr| {
        let waits_for_one = flags & libc::MSG_WAITFORONE != 0;
        let more = if at != 0 && waits_for_one { libc::MSG_DONTWAIT } else { 0 };
        // SAFETY: guaranteed by the caller.
        let received = unsafe { recvmsg(fd, message, flags & !libc::MSG_WAITFORONE | more) };
        // As the system, which looks at the time only after a message.
        (received, limit.is_some_and(|limit| begun.elapsed() >= limit))
    };
    match way(fd) {
        // SAFETY: guaranteed by the caller.
        Way::Stream(_) => unsafe { each(list, count, receive) },
        Way::Failure(number) => fail(number),
        // SAFETY: guaranteed by the caller.
        Way::Kernel => unsafe { libc::syscall(libc::SYS_recvmmsg, fd, list, count, flags, time) as c_int },
    }
}

/// Returns the flags of a message for those of a call with an offset, or an error number. A stream has no offsets.
fn message_flags(offset: off_t, flags: c_int) -> Result<c_int, c_int> {
    match flags {
        _ if offset != -1 => Err(libc::ESPIPE),
        _ if flags & !(libc::RWF_NOWAIT | libc::RWF_HIPRI) != 0 => Err(libc::EOPNOTSUPP),
        _ => Ok(if flags & libc::RWF_NOWAIT != 0 { libc::MSG_DONTWAIT } else { 0 }),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn preadv2(fd: c_int, list: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
    match way(fd) {
        Way::Stream(stream) => match message_flags(offset, flags) {
            // SAFETY: guaranteed by the caller.
            Ok(flags) => unsafe { receive_list(&stream, list, count as usize, flags) },
            Err(number) => fail(number),
        },
        Way::Failure(number) => fail(number),
        // SAFETY: guaranteed by the caller. The system ignores the upper half of the offset if the lower is whole.
        Way::Kernel => unsafe { libc::syscall(libc::SYS_preadv2, fd, list, count, offset, 0, flags) as ssize_t },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev2(fd: c_int, list: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
    match way(fd) {
        Way::Stream(stream) => match message_flags(offset, flags) {
            // SAFETY: guaranteed by the caller.
            Ok(flags) => unsafe { transmit_list(&stream, list, count as usize, flags) },
            Err(number) => fail(number),
        },
        Way::Failure(number) => fail(number),
        // SAFETY: guaranteed by the caller. The system ignores the upper half of the offset if the lower is whole.
        Way::Kernel => unsafe { libc::syscall(libc::SYS_pwritev2, fd, list, count, offset, 0, flags) as ssize_t },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn preadv64v2(fd: c_int, list: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
    // SAFETY: guaranteed by the caller.
    unsafe { preadv2(fd, list, count, offset, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev64v2(fd: c_int, list: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
    // SAFETY: guaranteed by the caller.
    unsafe { pwritev2(fd, list, count, offset, flags) }
}
