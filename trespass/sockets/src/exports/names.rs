//! Addresses and options of sockets.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;

use libc::{sockaddr, socklen_t};

use super::{fail, number};
use crate::address;
use crate::stream::Stream;
use crate::system;

/// The options with the names of 64-bit times.
const TIMES: [c_int; 4] = [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO, SO_RCVTIMEO_NEW, SO_SNDTIMEO_NEW];
const SO_RCVTIMEO_NEW: c_int = 66;
const SO_SNDTIMEO_NEW: c_int = 67;
/// Options with which the system reports what it has sent.
const REPORTS: [c_int; 3] = [libc::SO_ZEROCOPY, libc::SO_TIMESTAMPING, SO_TIMESTAMPING_NEW];
const SO_TIMESTAMPING_NEW: c_int = 65;

unsafe fn report(stream: &Stream, name: SocketAddr, to: *mut sockaddr, length: *mut socklen_t) -> c_int {
    if to.is_null() || length.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: guaranteed by the caller.
    unsafe { address::store(name, stream.family, to, length) };
    0
}

replace! {
    fn getsockname(fd: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int,
    stream => report(&stream, stream.local, to, length)
}

replace! {
    fn getpeername(fd: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int,
    stream => report(&stream, stream.peer, to, length)
}

replace! {
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int,
    stream => {
        if level == libc::SOL_SOCKET && TIMES.contains(&name) {
            return system::getsockopt(fd, level, name, value, length);
        }
        let options = match stream.options() {
            Ok(options) => options,
            Err(error) => return fail(number(&error)),
        };
        let result = system::getsockopt(options, level, name, value, length);
        if result == 0 {
            match (level, name) {
                (libc::IPPROTO_TCP, libc::TCP_INFO) if *length != 0 => *value.cast::<u8>() = stream.state(),
                (libc::SOL_SOCKET, libc::SO_ERROR) if *length as usize == size_of::<c_int>() => {
                    value.cast::<c_int>().write_unaligned(stream.failure().map_or(0, |error| number(&error)));
                }
                _ => {}
            }
        }
        result
    }
}

replace! {
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int,
    stream => {
        if level == libc::SOL_SOCKET && REPORTS.contains(&name) {
            return fail(libc::EOPNOTSUPP);
        }
        if level == libc::SOL_SOCKET && TIMES.contains(&name) {
            // The program's descriptor keeps it.
            let result = system::setsockopt(fd, level, name, value, length);
            if result == 0 {
                stream.copy_limits(fd, fd);
            }
            return result;
        }
        match stream.options() {
            Ok(options) => system::setsockopt(options, level, name, value, length),
            Err(error) => fail(number(&error)),
        }
    }
}
