//! Streams of bytes, with the traits of tokio.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::ToSocketAddrs;

use super::waiting::poll;
use super::{Acceptor, Connection};
use crate::net;
use crate::worker::{Handle, Stats, Wait};

/// A stream of bytes, like `tokio::net::TcpStream`. It uses RDMA if both sides support it, otherwise TCP.
///
/// One task may read and another may write: clone the stream for this purpose. `flush` and `shutdown` of
/// `AsyncWriteExt` return when the peer's NIC has received everything that was written.
#[derive(Clone, Debug)]
pub struct Stream {
    inner: net::Stream,
}

impl Stream {
    /// Connects with the default worker of the process.
    ///
    /// # Errors
    ///
    /// See [`Connection::connect`].
    pub async fn connect(address: impl ToSocketAddrs) -> io::Result<Stream> {
        Connection::connect(address).await.map(Stream::over)
    }

    /// Connects with the given worker.
    ///
    /// # Errors
    ///
    /// See [`Connection::connect`].
    pub async fn connect_on(handle: &Handle, address: impl ToSocketAddrs) -> io::Result<Stream> {
        Connection::connect_on(handle, address, None).await.map(Stream::over)
    }

    /// The peer's address.
    ///
    /// # Errors
    ///
    /// Currently returns no errors.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.inner.peer_addr()
    }

    /// This side's address.
    ///
    /// # Errors
    ///
    /// Currently returns no errors.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// Returns the transport of the stream, the reason for it, and the traffic counters.
    ///
    /// # Errors
    ///
    /// Currently returns no errors.
    pub fn stats(&self) -> io::Result<Stats> {
        self.inner.stats()
    }

    /// Sets how many written bytes may wait to be sent: see
    /// [`Stream::set_send_buffer_size`](net::Stream::set_send_buffer_size).
    ///
    /// # Errors
    ///
    /// `NotConnected` if the stream has ended.
    pub fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.inner.set_send_buffer_size(bytes)
    }

    /// Creates the stream over a connection of which nothing was received.
    fn over(connection: Connection) -> Stream {
        Stream { inner: connection.into_inner().into() }
    }

    pub(super) fn blocking(&self) -> &net::Stream {
        &self.inner
    }

    /// Returns the stream for calls that block.
    pub fn into_blocking(self) -> net::Stream {
        self.inner
    }
}

impl From<net::Stream> for Stream {
    fn from(inner: net::Stream) -> Stream {
        Stream { inner }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = &self.inner;
        poll(stream.attempt(Wait::Read, context.waker(), |worker| stream.read_to(worker, buffer).map(drop)))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let stream = &self.inner;
        poll(stream.attempt(Wait::Write, context.waker(), |worker| stream.write_some(worker, bytes)))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = &self.inner;
        poll(stream.attempt(Wait::Write, context.waker(), |worker| stream.write_parts(worker, parts)))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Is ready when the peer's NIC has received everything that was written.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let id = self.inner.connection().id();
        poll(self.inner.attempt(Wait::Write, context.waker(), |worker| worker.has_flushed(id)))
    }

    /// Shuts down writing. Is ready when the peer's NIC has received everything that was written.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let id = self.inner.connection().id();
        poll(self.inner.attempt(Wait::Write, context.waker(), |worker| {
            worker.shutdown(id)?;
            worker.flush();
            worker.has_flushed(id)
        }))
    }
}

/// Accepts streams over RDMA, and over TCP at the same port, like `tokio::net::TcpListener`.
#[derive(Debug)]
pub struct Listener {
    acceptor: Acceptor,
}

impl Listener {
    /// Listens with the default worker of the process; port 0 selects any free port.
    ///
    /// # Errors
    ///
    /// See [`Acceptor::bind`].
    pub async fn bind(address: impl ToSocketAddrs) -> io::Result<Listener> {
        Acceptor::bind(address).await.map(Listener::from)
    }

    /// Listens with the given worker.
    ///
    /// # Errors
    ///
    /// See [`Acceptor::bind`].
    pub async fn bind_on(handle: &Handle, address: impl ToSocketAddrs) -> io::Result<Listener> {
        Acceptor::bind_on(handle, address).await.map(Listener::from)
    }

    /// Waits for the next stream, and returns it with the peer's address.
    ///
    /// # Errors
    ///
    /// See [`Acceptor::accept`]. If the stream ended before its address was read, the listener continues.
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let connection = self.acceptor.accept().await?;
        let (_, peer) = connection.addresses()?;
        Ok((Stream::over(connection), peer))
    }

    /// Accepts the next stream. If none is pending, the task is woken when one may be.
    ///
    /// # Errors
    ///
    /// See [`Acceptor::accept`].
    pub fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        self.acceptor.poll_accept(context).map_ok(Stream::over)
    }

    /// The address, with its port.
    ///
    /// # Errors
    ///
    /// Currently returns no errors.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.acceptor.local_addr())
    }
}

impl From<Acceptor> for Listener {
    fn from(acceptor: Acceptor) -> Listener {
        Listener { acceptor }
    }
}
