//! A TCP listener of the program, which also accepts over RDMA.
//!
//! The descriptor stays the kernel's. The process that first waits for connections (with `accept`, `poll`, `select` or
//! `epoll_ctl`) gets the acceptor for RDMA: of a server that listens and then forks, the child that serves. Another
//! process of the same port then accepts over TCP only.

use std::ffi::c_int;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libc::epoll_event;
use trespass::{Acceptor, Connection};

use crate::address;
use crate::rdma;
use crate::settings::settings;
use crate::system;

/// How long a port that another process serves over RDMA is left alone.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Listener {
    /// The family and the address of the TCP socket.
    pub(crate) family: c_int,
    address: SocketAddr,
    state: Mutex<State>,
}

struct State {
    acceptor: Option<Arc<Acceptor>>,
    /// When to make the acceptor; `None` for never.
    next: Option<Instant>,
    has_logged: bool,
    /// Until there is an acceptor: the epolls that watch the listener, with their numbers and the events. These are
    /// duplicates, because the program may close an epoll and use its number for another.
    epolls: Vec<(c_int, OwnedFd, epoll_event)>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("acceptor", &self.acceptor).field("next", &self.next).finish_non_exhaustive()
    }
}

impl Listener {
    /// Returns the listener of a TCP socket that listens, unless the settings exclude its port.
    pub(crate) fn new(fd: c_int) -> Option<Listener> {
        if system::option(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN)? == 0 {
            return None;
        }
        let address = address::local(fd)?;
        settings().port(address.port())?;
        let family = system::option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN)?;
        let state = State { acceptor: None, next: Some(Instant::now()), has_logged: false, epolls: Vec::new() };
        Some(Listener { family, address, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the acceptor. The first call of the process makes it; if another process has the port, a later one does.
    fn acceptor(&self) -> Option<Arc<Acceptor>> {
        let mut state = self.state();
        if state.acceptor.is_some() || state.next.is_none_or(|next| Instant::now() < next) {
            return state.acceptor.clone();
        }
        let made = self.bind();
        let address = self.address;
        match &made {
            Err(_) if state.has_logged => {}
            Ok(_) => settings().log(|| format!("listening at {address} over RDMA and TCP")),
            Err(error) => settings().log(|| format!("listening at {address} over TCP only: {error}")),
        }
        state.has_logged = true;
        let is_in_use = matches!(&made, Err(error) if error.kind() == ErrorKind::AddrInUse);
        state.next = is_in_use.then(|| Instant::now() + RETRY);
        let acceptor = Arc::new(made.ok()?);
        state.acceptor = Some(Arc::clone(&acceptor));
        let epolls = std::mem::take(&mut state.epolls);
        drop(state);
        for (_, epoll, event) in epolls {
            watch(&acceptor, epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, Some(event));
        }
        Some(acceptor)
    }

    /// The program has added the listener to an epoll, or changed or removed it.
    pub(crate) fn follow(&self, epoll: c_int, operation: c_int, event: Option<epoll_event>) {
        let mut state = self.state();
        if let Some(acceptor) = &state.acceptor {
            return watch(acceptor, epoll, operation, event);
        }
        state.epolls.retain(|(known, ..)| *known != epoll);
        if let Some(event) = event.filter(|_| operation != libc::EPOLL_CTL_DEL && state.next.is_some())
            && let Ok(same) = system::duplicate(epoll)
        {
            state.epolls.push((epoll, same, event));
        }
    }

    /// The TCP socket listens no more.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.next = None;
        state.epolls.clear();
        let acceptor = state.acceptor.take();
        drop(state);
        // A call that waits has another handle.
        acceptor.iter().for_each(|acceptor| acceptor.close());
    }

    fn bind(&self) -> io::Result<Acceptor> {
        let mut address = self.address;
        address.set_port(settings().port(address.port()).unwrap_or_default());
        let handle = rdma::handle()?;
        system::above_standard(|| {
            let acceptor = Acceptor::bind_on(&handle, address)?;
            acceptor.descriptor()?;
            Ok(acceptor)
        })
    }

    /// The descriptor that is readable while a connection over RDMA waits. The acceptor keeps it open.
    pub(crate) fn readiness(&self) -> Option<(Arc<Acceptor>, RawFd)> {
        let acceptor = self.acceptor()?;
        let fd = acceptor.descriptor().ok()?.as_raw_fd();
        Some((acceptor, fd))
    }

    /// Whether a connection over RDMA waits.
    pub(crate) fn is_ready(&self) -> bool {
        self.readiness().is_some_and(|(_acceptor, fd)| system::is_readable(fd))
    }

    /// Returns the next connection over RDMA, if there is one, with its addresses.
    pub(crate) fn accept(&self) -> Option<(Connection, (SocketAddr, SocketAddr))> {
        let acceptor = self.acceptor()?;
        loop {
            let connection = acceptor.try_accept().ok()?;
            // A connection that has ended meanwhile has no addresses.
            if let Ok((mut local, peer)) = connection.addresses() {
                local.set_port(self.address.port());
                return Some((connection, (local, peer)));
            }
        }
    }
}

/// Adds an acceptor to an epoll, or changes or removes it. It may be there already, for another number of the same listener.
fn watch(acceptor: &Acceptor, epoll: c_int, operation: c_int, event: Option<epoll_event>) {
    if let Ok(fd) = acceptor.descriptor() {
        system::change_epoll(epoll, operation, fd, event);
    }
}

/// Whether a descriptor is a TCP socket.
pub(crate) fn is_tcp(fd: c_int) -> bool {
    let option = |name| system::option(fd, libc::SOL_SOCKET, name);
    option(libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP)
        && matches!(option(libc::SO_DOMAIN), Some(libc::AF_INET | libc::AF_INET6))
}
