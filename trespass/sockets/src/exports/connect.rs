//! Functions that listen, accept, connect and shut down.

use std::ffi::c_int;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::Arc;

use libc::{pollfd, sockaddr, socklen_t, timeval};

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
    let Some(listener) = table::listener(fd) else { return unsafe { system::accept4(fd, from, length, flags) } };
    // SAFETY: guaranteed by the caller.
    let Some(readiness) = listener.readiness() else { return unsafe { system::accept4(fd, from, length, flags) } };
    loop {
        match accept_stream(&listener, flags) {
            Ok(Some((number, peer))) => {
                // SAFETY: guaranteed by the caller.
                unsafe { address::store(peer, listener.family, from, length) };
                return number;
            }
            // SAFETY: guaranteed by the caller. If no connection waits, the call returns at once.
            Ok(None) if is_nonblocking(fd) => return unsafe { system::accept4(fd, from, length, flags) },
            Ok(None) => {}
            Err(error) => return fail(number(&error)),
        }
        let mut fds = [fd, readiness].map(|fd| pollfd { fd, events: libc::POLLIN, revents: 0 });
        // SAFETY: the list has two elements.
        match unsafe { system::poll(fds.as_mut_ptr(), 2, time_limit(fd)) } {
            0 => return fail(libc::EAGAIN),
            -1 => return -1,
            _ if fds[1].revents != 0 => {}
            // SAFETY: guaranteed by the caller. If another thread or process has taken the connection, the call waits
            // for the next one over TCP.
            _ => return unsafe { system::accept4(fd, from, length, flags) },
        }
    }
}

/// Accepts a connection over RDMA, if one waits. Returns its number and the peer's address.
fn accept_stream(listener: &Listener, flags: c_int) -> io::Result<Option<(c_int, SocketAddr)>> {
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
    settings().log(|| format!("accepted {peer} over {}", stream.path()));
    drop(table::insert(program.into_raw_fd(), Entry::Stream(stream), number));
    Ok(Some((number, peer)))
}

fn is_nonblocking(fd: c_int) -> bool {
    system::control(fd, libc::F_GETFL, 0).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0)
}

/// How long the socket lets a call wait, in milliseconds, or -1.
fn time_limit(fd: c_int) -> c_int {
    let mut value = timeval { tv_sec: 0, tv_usec: 0 };
    let mut length = size_of::<timeval>() as socklen_t;
    let place = (&raw mut value).cast();
    // SAFETY: the value has space for the length.
    let result = unsafe { system::getsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, place, &raw mut length) };
    let time = value.tv_sec.saturating_mul(1000).saturating_add(value.tv_usec / 1000);
    if result != 0 || time == 0 { -1 } else { time.try_into().unwrap_or(c_int::MAX) }
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
    let peer = unsafe { address::read(to, length) }.map(address::canonical);
    let connected = match peer.filter(|peer| may_use_rdma(fd, *peer)) {
        None => Ok(false),
        Some(peer) => connect_stream(fd, peer).map(|()| true),
    };
    if let Ok(true) = connected {
        return 0;
    }
    // SAFETY: guaranteed by the caller.
    let result = unsafe { system::connect(fd, to, length) };
    // Without a server at all, the program may try again soon.
    let number = system::errno();
    if let (Some(peer), Err(error)) = (peer, connected)
        && error.kind() == ErrorKind::ConnectionRefused
        && (result == 0 || number == libc::EINPROGRESS)
    {
        refusals::note(peer);
        system::set_errno(number);
    }
    result
}

/// Whether a socket may become a stream: not if an epoll watches it, another number stands for it, or the program has
/// bound it to an address or a device, or marked it.
fn may_use_rdma(fd: c_int, peer: SocketAddr) -> bool {
    let has_option = |name| system::option(fd, libc::SOL_SOCKET, name).is_some_and(|value| value != 0);
    let is_bound = || address::local(fd).is_none_or(|local| local.port() != 0 || !local.ip().is_unspecified());
    settings().port(peer.port()).is_some()
        && table::fits(fd)
        && !table::is_held(fd)
        && is_tcp(fd)
        && !is_bound()
        && !has_option(SO_BINDTOIFINDEX)
        && !has_option(libc::SO_MARK)
}

/// Connects over RDMA, and puts the mirror in place of the socket. Returns an error if the program shall connect over TCP.
fn connect_stream(fd: c_int, peer: SocketAddr) -> io::Result<()> {
    let connected = attempt(fd, peer);
    settings().log(|| match &connected {
        Ok(stream) => format!("connected to {peer} over {}", stream.path()),
        Err(error) => format!("connecting to {peer} over TCP: {error}"),
    });
    connected.map(drop)
}

fn attempt(fd: c_int, peer: SocketAddr) -> io::Result<Arc<Stream>> {
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
    for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        system::copy_time(fd, program.as_raw_fd(), name);
    }
    // First: a call of another thread that finds the mirror must also find its stream.
    drop(table::insert(fd, Entry::Stream(Arc::clone(&stream)), program.as_raw_fd()));
    // A program that is executed would find no stream for the number.
    // SAFETY: both descriptors are open, and the program gets another file for this number.
    if unsafe { system::dup3(program.as_raw_fd(), fd, libc::O_CLOEXEC) } < 0 {
        let error = io::Error::last_os_error();
        drop(table::remove(fd));
        return Err(error);
    }
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
                drop(table::remove(fd));
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
