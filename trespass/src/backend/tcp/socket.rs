//! Creates sockets with the options that links need.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

/// Idle seconds before the kernel probes the peer, seconds between probes, and the number of unanswered probes that
/// ends the link.
const KEEPALIVE: (u64, u64, u32) = (5, 1, 4);

/// Creates a non-blocking listener. An IPv6 listener does not accept IPv4, so that a program can bind both at one port.
pub(super) fn listen(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = make(address)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() && !address.ip().is_unspecified() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    net::bind(&socket, &address)?;
    net::listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// Creates a socket that has begun to connect.
pub(super) fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = make(address)?;
    match net::connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let socket = TcpStream::from(socket);
    prepare(&socket)?;
    Ok(socket)
}

pub(super) fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    let (idle, interval, count) = KEEPALIVE;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(idle))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(interval))?;
    sockopt::set_tcp_keepcnt(socket, count)?;
    // A connection with unacknowledged data ends after the same time as an idle one: idle + interval × count.
    sockopt::set_tcp_user_timeout(socket, (idle as u32 + interval as u32 * count) * 1_000)?;
    Ok(())
}

fn make(address: SocketAddr) -> io::Result<std::os::fd::OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    Ok(net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?)
}
