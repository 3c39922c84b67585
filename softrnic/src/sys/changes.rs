//! Tells that the addresses of this host may have changed: a netlink socket that hears of interfaces and of their addresses.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::RecvFlags;

/// What has changed since it was made, or since it was asked last. Readable while there is anything.
#[derive(Debug)]
pub(crate) struct Changes(OwnedFd);

impl Changes {
    /// `None` where the kernel lets this process listen to none of it.
    pub(crate) fn new() -> Option<Self> {
        const GROUPS: i32 = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
        // Miri knows no such sockets.
        if cfg!(miri) {
            return None;
        }
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: takes plain numbers.
        let socket = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
        if socket < 0 {
            return None;
        }
        // SAFETY: just made, and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        // SAFETY: zeros are a value of it.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as u16;
        address.nl_groups = GROUPS.cast_unsigned();
        let length = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address can be read, and is so long.
        let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
        (bound == 0).then_some(Self(socket))
    }

    pub(crate) fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Whether there was anything. It is not readable then, until the next change.
    pub(crate) fn take(&self) -> bool {
        /// More are left for the next time.
        const MOST: usize = 10_000;
        let mut has_changed = false;
        for _ in 0..MOST {
            // What a message says does not matter, and the rest of it goes.
            has_changed |= match rustix::net::recv(&self.0, &mut [0_u8], RecvFlags::DONTWAIT) {
                Ok(_) => true,
                Err(Errno::INTR) => continue,
                // Some were lost for want of room.
                Err(Errno::NOBUFS) => true,
                Err(_) => break,
            };
        }
        has_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn without_a_change_there_is_nothing_to_take() {
        let Some(changes) = Changes::new() else { return };
        changes.take();
        // SAFETY: takes plain numbers.
        let flags = unsafe { libc::fcntl(changes.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
    }
}
