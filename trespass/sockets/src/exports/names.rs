//! Addresses and options of sockets.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;

use libc::{sockaddr, socklen_t};

use super::{fail, number};
use crate::address;
use crate::stream::Stream;
use crate::system;

/// The state of a connection in `tcp_info`.
const ESTABLISHED: u8 = 1;

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
        let options = match stream.options() {
            Ok(options) => options,
            Err(error) => return fail(number(&error)),
        };
        let result = system::getsockopt(options, level, name, value, length);
        if result == 0 && (level, name) == (libc::IPPROTO_TCP, libc::TCP_INFO) && *length != 0 {
            *value.cast::<u8>() = ESTABLISHED;
        }
        result
    }
}

replace! {
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int,
    stream => {
        if level == libc::SOL_SOCKET && matches!(name, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) {
            // Calls sleep on the program's descriptor.
            system::setsockopt(fd, level, name, value, length);
        }
        match stream.options() {
            Ok(options) => system::setsockopt(options, level, name, value, length),
            Err(error) => fail(number(&error)),
        }
    }
}
