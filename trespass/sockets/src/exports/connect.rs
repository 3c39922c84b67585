//! Functions that listen, accept, connect and shut down.

use std::ffi::c_int;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::Arc;
use std::time::Instant;

use libc::{pollfd, sockaddr, socklen_t};

use super::{done, fail, number};
use crate::address;
use crate::listener::{Listener, is_tcp};
use crate::rdma;
use crate::refusals;
use crate::settings::settings;
use crate::stream::Stream;
use crate::system;
use crate::table::{self, Entry, Found};

/// The option `SO_BINDTOIFINDEX`, which also shows `SO_BINDTODEVICE`.
const SO_BINDTOIFINDEX: c_int = 62;

#[unsafe(no_mangle)]
unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    let result = unsafe { system::listen(fd, backlog) };
    if result == 0
        && table::find(fd).is_none()
        && !table::is_held(fd)
        && is_tcp(fd)
        && let Some(listener) = Listener::new(fd)
    {
        drop(table::insert(fd, Entry::Listener(Arc::new(listener)), fd));
    }
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept(fd: c_int, from: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { accept4(fd, from, length, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(fd: c_int, from: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    let accept = || unsafe { system::accept4(fd, from, length, flags) };
    let is_known = flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) == 0;
    let Some(listener) = table::listener(fd).filter(|_| is_known) else { return accept() };
    let mut limit = None;
    loop {
        // Another thread may have shut down the listener meanwhile.
        let Some((_acceptor, readiness)) = listener.readiness() else { return accept() };
        match accept_stream(&listener, fd, flags) {
            Ok(Some((number, peer))) => {
                // SAFETY: guaranteed by the caller.
                unsafe { address::store(peer, listener.family, from, length) };
                return number;
            }
            // If no connection waits, the call returns at once.
            Ok(None) if is_nonblocking(fd) => return accept(),
            Ok(None) => {}
            Err(error) => return fail(number(&error)),
        }
        let mut fds = [fd, readiness].map(|fd| pollfd { fd, events: libc::POLLIN, revents: 0 });
        let deadline = *limit.get_or_insert_with(|| Some(Instant::now() + system::time_limit(fd, libc::SO_RCVTIMEO)?));
        match system::wait(&mut fds, deadline) {
            Ok(0) => return fail(libc::EAGAIN),
            // As the system, which does not restart a call with a time limit.
            Err(libc::EINTR) if deadline.is_none() && system::restarts_calls() => {}
            Err(number) => return fail(number),
            Ok(_) if fds[0].revents == 0 => {}
            // If another thread or process has taken the connection, the call waits for the next one over TCP.
            Ok(_) => return accept(),
        }
    }
}

/// Accepts a connection over RDMA, if one waits. Returns its number and the peer's address.
fn accept_stream(listener: &Listener, fd: c_int, flags: c_int) -> io::Result<Option<(c_int, SocketAddr)>> {
    // The connection keeps waiting if the process has no descriptors for it.
    match system::pair().and_then(|pair| Ok((system::duplicate(pair[0].as_raw_fd())?, pair))) {
        Ok((_, pair)) if table::fits(pair[0].as_raw_fd()) => {}
        _ if !listener.is_ready() => return Ok(None),
        Ok(_) => return Err(io::Error::from_raw_os_error(libc::EMFILE)),
        Err(error) => return Err(error),
    }
    let Some((connection, (local, peer))) = listener.accept() else { return Ok(None) };
    let is_nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    let (stream, program) = Stream::new(connection, listener.family, (local, peer), None, is_nonblocking)?;
    let number = program.as_raw_fd();
    if !table::fits(number) {
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    if is_nonblocking {
        system::control(number, libc::F_SETFL, libc::O_NONBLOCK)?;
    }
    stream.copy_limits(fd, number);
    settings().log(|| format!("accepted {peer} over {}", stream.path()));
    drop(table::insert(program.into_raw_fd(), Entry::Stream(stream), number));
    Ok(Some((number, peer)))
}

fn is_nonblocking(fd: c_int) -> bool {
    system::control(fd, libc::F_GETFL, 0).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn connect(fd: c_int, to: *const sockaddr, length: socklen_t) -> c_int {
    match table::find(fd) {
        None => {}
        Some(Found::Stream(_)) => return fail(libc::EISCONN),
        Some(Found::Inherited) => return fail(libc::EIO),
        // SAFETY: guaranteed by the caller.
        Some(Found::Listener(_)) => return unsafe { system::connect(fd, to, length) },
    }
    // SAFETY: guaranteed by the caller.
    let peer = unsafe { address::read(to, length) }.map(address::canonical).map(address::reachable);
    let mut refused = false;
    if let Some(peer) = peer.filter(|peer| may_use_rdma(fd, *peer))
        && let Some(socket) = table::begin(fd)
    {
        match connect_stream(fd, socket, peer) {
            Ok(()) => return 0,
            Err(error) => refused = error.kind() == ErrorKind::ConnectionRefused,
        }
        if !table::cancel(fd, socket) {
            // Another thread has closed it.
            return fail(libc::EBADF);
        }
    }
    // SAFETY: guaranteed by the caller.
    let result = unsafe { system::connect(fd, to, length) };
    // Without a server at all, the program may try again soon.
    let number = system::errno();
    if let Some(peer) = peer.filter(|_| refused && (result == 0 || number == libc::EINPROGRESS)) {
        refusals::note(peer);
        system::set_errno(number);
    }
    result
}

/// Whether a socket may become a stream: not if the program has bound it to an address or a device, marked it, or
/// uses reports of what the system has sent.
fn may_use_rdma(fd: c_int, peer: SocketAddr) -> bool {
    let has_option = |name| system::option(fd, libc::SOL_SOCKET, name).is_some_and(|value| value != 0);
    let is_bound = || address::local(fd).is_none_or(|local| local.port() != 0 || !local.ip().is_unspecified());
    settings().port(peer.port()).is_some()
        && table::fits(fd)
        && is_tcp(fd)
        && !is_bound()
        && !has_option(SO_BINDTOIFINDEX)
        && [libc::SO_MARK, libc::SO_ZEROCOPY, libc::SO_TIMESTAMPING].into_iter().all(|name| !has_option(name))
}

/// Connects over RDMA, and puts the mirror in place of the socket. Returns an error if the program shall connect over TCP.
fn connect_stream(fd: c_int, socket: u64, peer: SocketAddr) -> io::Result<()> {
    let connected = attempt(fd, socket, peer);
    settings().log(|| match &connected {
        Ok(stream) => format!("connected to {peer} over {}", stream.path()),
        Err(error) => format!("connecting to {peer} over TCP: {error}"),
    });
    connected.map(drop)
}

fn attempt(fd: c_int, socket: u64, peer: SocketAddr) -> io::Result<Arc<Stream>> {
    if refusals::has(peer) {
        return Err(io::Error::other("the server used TCP only before"));
    }
    let port = settings().port(peer.port()).unwrap_or_default();
    let connection = rdma::connect(SocketAddr::new(peer.ip(), port))?;
    let (local, _) = connection.addresses()?;
    let family = system::option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN).unwrap_or(libc::AF_INET);
    let flags = system::control(fd, libc::F_GETFL, 0)?;
    let options = Some(system::duplicate(fd)?);
    let is_nonblocking = flags & libc::O_NONBLOCK != 0;
    let (stream, program) = Stream::new(connection, family, (local, peer), options, is_nonblocking)?;
    system::control(program.as_raw_fd(), libc::F_SETFL, flags)?;
    stream.copy_limits(fd, program.as_raw_fd());
    // A program that is executed would find no stream for the number.
    // SAFETY: both descriptors are open, and the program gets another file for this number.
    let replace = || unsafe { system::dup3(program.as_raw_fd(), fd, libc::O_CLOEXEC) };
    table::finish(fd, socket, Entry::Stream(Arc::clone(&stream)), program.as_raw_fd(), replace)?;
    Ok(stream)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    let stream = match table::find(fd) {
        Some(Found::Stream(stream)) => stream,
        Some(Found::Inherited) => return fail(libc::EIO),
        found => {
            // SAFETY: guaranteed by the caller.
            let result = unsafe { system::shutdown(fd, how) };
            if let (Some(Found::Listener(listener)), 0, libc::SHUT_RD | libc::SHUT_RDWR) = (found, result, how) {
                listener.close();
                // It may listen again, but an epoll may watch it.
                table::release(fd.cast_unsigned(), fd.cast_unsigned(), || 0, |_| true);
                table::hold(fd);
            }
            return result;
        }
    };
    let direction = match how {
        libc::SHUT_RD => Shutdown::Read,
        libc::SHUT_WR => Shutdown::Write,
        libc::SHUT_RDWR => Shutdown::Both,
        _ => return fail(libc::EINVAL),
    };
    let result = stream.shutdown(direction);
    // The descriptor shows it, and calls that sleep on it return.
    // SAFETY: guaranteed by the caller.
    unsafe { system::shutdown(fd, how) };
    done(result)
}
