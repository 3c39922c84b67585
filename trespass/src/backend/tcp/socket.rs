//! Creates sockets with the options that links need.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

/// The idle time in seconds before the kernel probes the peer, the seconds between two probes, and the number of
/// unanswered probes after which the link ends.
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
    Ok(())
}

/// The state of the acknowledgements by the peer's kernel.
pub(super) struct Acknowledgements {
    /// Whether the peer's kernel may have more to acknowledge.
    pub(super) are_outstanding: bool,
    /// Whether the peer's kernel has been silent for the time after which keepalive ends an idle connection.
    /// TCP_USER_TIMEOUT is no substitute, because it also ends connections to a peer whose kernel acknowledges but
    /// whose program reads nothing.
    pub(super) are_overdue: bool,
}

/// Reads TCP_INFO (tcp(7)).
pub(super) fn acknowledgements(socket: &TcpStream) -> Acknowledgements {
    // SAFETY: zero is valid for a structure of integers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`.
    let status = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut length)
    };
    let (idle, interval, count) = KEEPALIVE;
    // Retransmissions or probes of a full window are unanswered. Otherwise, bytes may merely wait for space in the
    // peer's window.
    let is_asking = info.tcpi_retransmits != 0 || info.tcpi_probes != 0;
    let silence = Duration::from_millis(u64::from(info.tcpi_last_ack_recv));
    Acknowledgements {
        are_outstanding: has_unacknowledged(socket),
        are_overdue: status == 0 && is_asking && silence >= Duration::from_secs(idle + interval * u64::from(count)),
    }
}

/// Whether the socket contains bytes that the peer has not acknowledged (SIOCOUTQ, tcp(7)).
fn has_unacknowledged(socket: &TcpStream) -> bool {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes an integer.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    status == 0 && bytes != 0
}

fn make(address: SocketAddr) -> io::Result<std::os::fd::OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    Ok(net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?)
}
