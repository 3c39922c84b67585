//! A listener for streams.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::connection::Acceptor;
use crate::worker::Handle;

use super::Stream;

/// Accepts streams over RDMA, and over TCP at the same port.
#[derive(Debug)]
pub struct Listener {
    acceptor: Acceptor,
    is_nonblocking: AtomicBool,
}

/// An iterator over the accepted streams, which never ends.
#[derive(Debug)]
pub struct Incoming<'l>(&'l Listener);

impl Listener {
    /// Listens at an address of this host; port 0 selects any free port.
    ///
    /// # Errors
    ///
    /// The address is in use, or does not belong to this host.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Listener> {
        Acceptor::bind(address).map(Listener::over)
    }

    /// Listens with the given worker.
    ///
    /// # Errors
    ///
    /// See [`Listener::bind`].
    pub fn bind_on(handle: &Handle, address: impl ToSocketAddrs) -> io::Result<Listener> {
        Acceptor::bind_on(handle, address).map(Listener::over)
    }

    fn over(acceptor: Acceptor) -> Listener {
        Listener { acceptor, is_nonblocking: AtomicBool::new(false) }
    }

    /// Waits for the next stream, and returns it with the peer's address.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if no connection is pending and the listener is non-blocking.
    pub fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let connection = match self.is_nonblocking.load(Ordering::Relaxed) {
            true => self.acceptor.try_accept()?,
            false => self.acceptor.accept()?,
        };
        let (_, peer) = connection.addresses()?;
        Ok((Stream::from(connection), peer))
    }

    /// An iterator over the accepted streams, which never ends.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }

    /// The address, with its port.
    ///
    /// # Errors
    ///
    /// Currently returns no errors.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.acceptor.local_addr())
    }

    /// Makes `accept` return `WouldBlock` instead of waiting. The listener's descriptor ([`AsFd`]) is readable while
    /// `accept` may return a stream. So accept until `WouldBlock`, and then wait for the descriptor.
    ///
    /// # Errors
    ///
    /// The process has no descriptors left.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        if nonblocking {
            self.acceptor.descriptor()?;
        }
        self.is_nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }
}

/// Returns the descriptor of a listener that is or was non-blocking. Another listener returns the worker's descriptor,
/// which programs must not use.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.acceptor.known_descriptor().unwrap_or_else(|| self.acceptor.handle().fd())
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<Stream>;

    fn next(&mut self) -> Option<io::Result<Stream>> {
        Some(self.0.accept().map(|(stream, _)| stream))
    }
}
