//! Accepts connections.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use tokio::net::{ToSocketAddrs, lookup_host};

use super::Connection;
use super::waiting::{Waiting, poll};
use crate::worker::{Handle, Source, would_block};

/// Accepts connections over RDMA, and over TCP at the same port. Several tasks may accept at the same time.
#[derive(Debug)]
pub struct Acceptor {
    inner: crate::Acceptor,
}

impl Acceptor {
    /// Listens with the default worker of the process; port 0 selects any free port.
    ///
    /// # Errors
    ///
    /// The address is in use, or does not belong to this host.
    pub async fn bind(address: impl ToSocketAddrs) -> io::Result<Acceptor> {
        Acceptor::bind_on(&Handle::global()?, address).await
    }

    /// Listens with the given worker.
    ///
    /// # Errors
    ///
    /// See [`Acceptor::bind`].
    pub async fn bind_on(handle: &Handle, address: impl ToSocketAddrs) -> io::Result<Acceptor> {
        let addresses: Vec<SocketAddr> = lookup_host(address).await?.collect();
        handle.drive_if_possible();
        crate::Acceptor::bind_on(handle, &*addresses).map(Acceptor::from)
    }

    /// The address, with its port.
    pub fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the acceptor was closed or stopped.
    pub async fn accept(&self) -> io::Result<Connection> {
        let (handle, id) = (self.inner.handle(), self.inner.id());
        handle.drive_if_possible();
        let accepted = Waiting::new(handle, Source::Acceptor(id), |worker| worker.try_accept(id)).await?;
        Ok(Connection::from(crate::Connection::new(handle.clone(), accepted)))
    }

    /// Accepts the next connection. If none is pending, the task is woken when one may be, unless another task polls the
    /// acceptor meanwhile.
    ///
    /// # Errors
    ///
    /// See [`Acceptor::accept`].
    pub fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<Connection>> {
        self.inner.handle().drive_if_possible();
        let accepted = self.inner.accept_or_wake(context.waker().clone(), |_, accepted| would_block(accepted));
        poll(accepted.map(Connection::from))
    }

    /// Stops listening: see [`Acceptor::stop`](crate::Acceptor::stop).
    pub fn stop(&self) {
        self.inner.stop();
    }

    /// Stops listening: see [`Acceptor::close`](crate::Acceptor::close).
    pub fn close(&self) {
        self.inner.close();
    }
}

impl From<crate::Acceptor> for Acceptor {
    fn from(inner: crate::Acceptor) -> Acceptor {
        Acceptor { inner }
    }
}
