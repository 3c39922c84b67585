//! The port of RoCEv2 at addresses of the test.

#![allow(clippy::unwrap_used, reason = "a panic in a helper fails the test")]

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::common::LONG;

pub(crate) const PORT: u16 = 4791;

/// Returns an address of the loopback interface that no other running test has, because the thread has no other one.
pub(crate) fn own_address(first: u8) -> Ipv4Addr {
    // SAFETY: the call has no conditions.
    let [_, b, c, d] = unsafe { libc::gettid() }.to_be_bytes();
    Ipv4Addr::new(127, first | b & 0x3f, c, d)
}

/// Returns a socket of the port of RoCEv2.
pub(crate) fn bound(address: Ipv4Addr) -> UdpSocket {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).unwrap();
    sockopt::set_socket_reuseport(&socket, true).unwrap();
    // The kernel selects the Identification 0, with DF.
    sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE).unwrap();
    _ = sockopt::set_socket_recv_buffer_size(&socket, 4 << 20);
    rustix::net::bind(&socket, &SocketAddrV4::new(address, PORT)).unwrap();
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}
