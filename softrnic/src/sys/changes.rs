//! Detects changes of this host's addresses through a netlink socket that receives the kernel's events about interfaces
//! and addresses.
//!
//! If the kernel refuses the netlink socket, programs receive no `IBV_EVENT_GID_CHANGE`. The GID table still changes
//! within a second, because a snapshot in `addresses` is used no longer than that.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::RecvFlags;

/// Detects changes since its creation or the last [`take`](Self::take). The descriptor is readable if any have
/// occurred.
#[derive(Debug)]
pub(crate) struct Changes(OwnedFd);

impl Changes {
    /// Opens the socket. Returns `None` if the kernel refuses the socket.
    pub(crate) fn new() -> Option<Self> {
        const GROUPS: i32 = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
        // Miri does not support netlink.
        if cfg!(miri) {
            return None;
        }
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the call takes only numbers.
        let socket = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
        if socket < 0 {
            return None;
        }
        // SAFETY: the descriptor is new, and only this function owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        // SAFETY: all zeros are a valid value.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as u16;
        address.nl_groups = GROUPS.cast_unsigned();
        let length = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address is readable and has this length.
        let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
        (bound == 0).then_some(Self(socket))
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Returns whether there were changes. Afterwards the descriptor is not readable until the next change.
    pub(crate) fn take(&self) -> bool {
        /// The maximum number of messages that a call reads. The next call reads the rest.
        const MAX_MESSAGES: usize = 10_000;
        let mut has_changed = false;
        for _ in 0..MAX_MESSAGES {
            // The content of a message does not matter, so one byte is read and the kernel discards the rest.
            has_changed |= match rustix::net::recv(&self.0, &mut [0_u8], RecvFlags::DONTWAIT) {
                Ok(_) => true,
                Err(Errno::INTR) => continue,
                // The socket buffer was full and messages were lost.
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
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn take_returns_false_without_changes() {
        let Some(changes) = Changes::new() else { return };
        changes.take();
        // SAFETY: the call takes only numbers.
        let flags = unsafe { libc::fcntl(changes.0.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
    }
}
