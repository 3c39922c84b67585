//! Options of UDP sockets, and the MTUs of interfaces.

use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use super::datagram::last;

/// Sets an option whose value is a number: `setsockopt(2)`. This function is for options that rustix does not support.
pub(crate) fn set(socket: impl AsFd, level: i32, option: i32, value: i32) -> Result<(), Errno> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value has this length.
    let code =
        unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, (&raw const value).cast(), length) };
    if code == 0 { Ok(()) } else { Err(last()) }
}

/// Returns how many datagrams the kernel has dropped because the receive buffer was full or a checksum was wrong. Returns
/// 0 before Linux 4.12. The number wraps around.
pub(crate) fn drops(socket: impl AsFd) -> u32 {
    /// The index of the number of drops (`SK_MEMINFO_DROPS`).
    const DROPS: usize = 8;
    let mut values = [0_u32; DROPS + 1];
    let mut length = size_of_val(&values) as libc::socklen_t;
    let (level, option, value) = (libc::SOL_SOCKET, libc::SO_MEMINFO, (&raw mut values).cast());
    // SAFETY: the values have this length, and the kernel writes no more.
    let code = unsafe { libc::getsockopt(socket.as_fd().as_raw_fd(), level, option, value, &raw mut length) };
    if code == 0 { values[DROPS] } else { 0 }
}

/// Returns the MTU of the interface with an index.
pub(crate) fn mtu(socket: impl AsFd, interface_index: u32) -> Result<u32, Errno> {
    let name = rustix::net::netdevice::index_to_name(&socket, interface_index)?;
    // SAFETY: zeros are valid values of all fields.
    let mut request = unsafe { std::mem::zeroed::<libc::ifreq>() };
    // The last byte stays zero.
    let space = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..space].iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    // SAFETY: the request is valid and writable.
    if unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) } != 0 {
        return Err(last());
    }
    // SAFETY: the kernel has written this field, and all bit patterns are valid.
    u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).map_err(|_| Errno::RANGE)
}
