//! A TCP listener of the program, which also accepts over RDMA.
//!
//! The descriptor stays the kernel's. The process that first waits for connections (with `accept`, `poll`, `select` or
//! `epoll_ctl`) gets the acceptor for RDMA: of a server that listens and then forks, the child that serves. Another
//! process of the same port then accepts over TCP only.

use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;

use trespass::{Acceptor, Connection};

use crate::address;
use crate::rdma;
use crate::settings::settings;
use crate::system;

#[derive(Debug)]
pub(crate) struct Listener {
    /// The family and the address of the TCP socket.
    pub(crate) family: c_int,
    address: SocketAddr,
    acceptor: OnceLock<Option<Acceptor>>,
}

impl Listener {
    /// Returns the listener of a TCP socket that listens, unless the settings exclude its port.
    pub(crate) fn new(fd: c_int) -> Option<Listener> {
        let address = address::local(fd)?;
        settings().port(address.port())?;
        let family = system::option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN)?;
        Some(Listener { family, address, acceptor: OnceLock::new() })
    }

    /// Returns the acceptor. The first call of the process makes it.
    fn acceptor(&self) -> Option<&Acceptor> {
        if self.acceptor.get().is_none() {
            let acceptor = self.bind();
            let address = self.address;
            settings().log(|| match &acceptor {
                Ok(_) => format!("listening at {address} over RDMA and TCP"),
                Err(error) => format!("listening at {address} over TCP only: {error}"),
            });
            // Another thread may make one meanwhile; one of the two found the port in use.
            if acceptor.is_ok() || self.acceptor.get().is_none() {
                _ = self.acceptor.set(acceptor.ok());
            }
        }
        self.acceptor.get()?.as_ref()
    }

    fn bind(&self) -> io::Result<Acceptor> {
        let mut address = self.address;
        address.set_port(settings().port(address.port()).unwrap_or_default());
        let acceptor = Acceptor::bind_on(&rdma::handle()?, address)?;
        acceptor.descriptor()?;
        Ok(acceptor)
    }

    /// The descriptor that is readable while a connection over RDMA waits.
    pub(crate) fn readiness(&self) -> Option<RawFd> {
        self.acceptor()?.descriptor().ok().map(|fd| fd.as_raw_fd())
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

/// Whether a descriptor is a TCP socket.
pub(crate) fn is_tcp(fd: c_int) -> bool {
    let option = |name| system::option(fd, libc::SOL_SOCKET, name);
    option(libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP)
        && matches!(option(libc::SO_DOMAIN), Some(libc::AF_INET | libc::AF_INET6))
}
