//! Messages over a connection.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::panic::catch_unwind;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::{ToSocketAddrs, lookup_host};
use tokio::time::sleep;

use super::Batch;
use super::sorted::Sorted;
use super::waiting::Waiting;
use crate::connection::{Attempts, after, unless_end};
use crate::region::Call;
use crate::worker::{Awaited, Handle, Source, Stats, Worker};
use crate::{Buf, Placed, Region};

/// A connection that transports messages of any length, and preserves their boundaries and order.
///
/// - `send` returns when the message is accepted.
/// - [`flush`](Self::flush) returns when the peer's NIC has received all messages.
/// - [`close`](Self::close) returns when the peer's worker has received all messages.
#[derive(Debug)]
pub struct Connection {
    inner: crate::Connection,
    sorted: Mutex<Sorted>,
}

impl From<crate::Connection> for Connection {
    fn from(mut inner: crate::Connection) -> Connection {
        inner.lingers = false;
        Connection { inner, sorted: Mutex::default() }
    }
}

impl Connection {
    /// Connects with the default worker of the process: over RDMA if both sides support it, otherwise over TCP.
    /// [`Connection::stats`] returns the transport and the reason for it.
    ///
    /// # Errors
    ///
    /// See `tokio::net::TcpStream::connect`. If there are several addresses, the error is that of the last address.
    pub async fn connect(address: impl ToSocketAddrs) -> io::Result<Connection> {
        Connection::connect_on(&Handle::global()?, address, None).await
    }

    /// Connects with the given worker. If `time` is given, it limits how long this takes; the runtime must then have
    /// time enabled. Unlike a time-out around this future, the limit leaves TCP a share of the time.
    ///
    /// # Errors
    ///
    /// `TimedOut`; otherwise see [`Connection::connect`].
    pub async fn connect_on(
        handle: &Handle,
        address: impl ToSocketAddrs,
        time: Option<Duration>,
    ) -> io::Result<Connection> {
        let deadline = time.and_then(after);
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
        let addresses = within(deadline, 1, lookup_host(address)).await?;
        handle.drive_if_possible();
        for address in addresses {
            match Connection::connect_to(handle, address, deadline).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn connect_to(handle: &Handle, address: SocketAddr, deadline: Option<Instant>) -> io::Result<Connection> {
        let mut attempts = Attempts::new(handle, address)?;
        while let Some((started, share)) = attempts.start() {
            let connected = match started.map(Connection::from) {
                Ok(connection) => {
                    let id = connection.inner.id();
                    let established = connection.wait(Awaited::Message, |worker| worker.has_established(id));
                    within(deadline, share, established).await.map(|()| connection.inner)
                }
                Err(error) => Err(error),
            };
            if let Some(result) = attempts.end(connected) {
                return result.map(Connection::from);
            }
        }
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sends a copy of a message. Waits while more bytes than the high-water mark wait to be sent.
    ///
    /// # Errors
    ///
    /// See [`Connection::send`](crate::Connection::send).
    pub async fn send(&self, message: &[u8]) -> io::Result<()> {
        let id = self.inner.id();
        self.wait(Awaited::Room, |worker| worker.try_send(id, message)).await
    }

    /// Sends a message from a buffer of [`Connection::alloc`], without copying it. If the future is dropped before it is
    /// ready, the message is dropped.
    ///
    /// # Errors
    ///
    /// See [`Connection::send`](crate::Connection::send).
    pub async fn send_buf(&self, message: Buf) -> io::Result<()> {
        let id = self.inner.id();
        let mut message = Some(message);
        let send = |worker: &mut Worker| {
            let Some(buffer) = message.take() else { return Ok(()) };
            worker.try_send_buf(id, buffer).map_err(|(error, buffer)| {
                message = Some(buffer);
                error
            })
        };
        self.wait(Awaited::Room, send).await
    }

    /// Allocates a buffer for [`Connection::send_buf`], in memory that is registered with the connection's device.
    pub fn alloc(&self, length: usize) -> Buf {
        self.inner.alloc(length)
    }

    /// Waits for the next message. Returns `None` after the last one. Notifications are not messages: see
    /// [`Connection::notified`].
    ///
    /// # Errors
    ///
    /// See [`Connection::recv`](crate::Connection::recv).
    pub async fn recv(&self) -> io::Result<Option<Buf>> {
        let id = self.inner.id();
        unless_end(self.wait(Awaited::Message, |worker| self.sorted(|sorted| sorted.message(worker, id))).await)
    }

    /// Waits for the next message and copies it into `out`. Returns its length, or `None` after the last one.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the message is longer than `out`: the message stays queued, and the error text contains its
    /// length. Otherwise see [`Connection::recv`].
    pub async fn recv_into(&self, out: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(message) = self.recv().await? else { return Ok(None) };
        let length = message.len();
        if let Some(target) = out.get_mut(..length) {
            target.copy_from_slice(&message);
            return Ok(Some(length));
        }
        self.sorted(|sorted| sorted.put_back(message));
        let text = format!("the message has {length} bytes, and the buffer {}", out.len());
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    /// Waits for the next message, and receives it in the given range of a region, or in a buffer. If the future is dropped,
    /// the message stays queued, what the region contains is undefined, and the device may still write to it. The next call
    /// READs the message from its start: in a loop, keep the future of a long transfer instead of dropping it.
    ///
    /// # Errors
    ///
    /// See [`Connection::recv_into_region`](crate::Connection::recv_into_region).
    pub async fn recv_into_region(&self, region: &Region, range: Range<usize>) -> io::Result<Option<Placed>> {
        let id = self.inner.id();
        let call = Call::new(&self.inner, region, range)?;
        let number = |placed: &Placed| match placed {
            Placed::Buffer(message) => message.notification(),
            Placed::Region(_) => None,
        };
        let next = |worker: &mut Worker| {
            self.sorted(|sorted| sorted.next(worker, id, |worker| call.attempt(worker), number, Placed::Buffer))
        };
        let received = self.wait(Awaited::Message, next).await;
        call.end(received)
    }

    /// Waits for the next notification ([`Batch::notify`]) and returns its number. Returns `None` after the last one.
    ///
    /// At most 64 notifications wait while the program reads messages, and at most 64 messages or 1 MiB wait while it
    /// reads notifications. More of them stop the peer until the program reads them.
    ///
    /// # Errors
    ///
    /// See [`Connection::recv`].
    pub async fn notified(&self) -> io::Result<Option<u64>> {
        let id = self.inner.id();
        unless_end(self.wait(Awaited::Message, |worker| self.sorted(|sorted| sorted.notification(worker, id))).await)
    }

    /// Waits until the peer's NIC has received everything that was sent.
    ///
    /// # Errors
    ///
    /// The reason why the connection ended, if it has ended already.
    pub async fn flush(&self) -> io::Result<()> {
        let id = self.inner.id();
        self.wait(Awaited::Room, |worker| worker.has_flushed(id)).await
    }

    /// Ends this side's sending. After the last message, the peer receives `None`. This side can still receive.
    ///
    /// # Errors
    ///
    /// The reason why the connection ended, if it has ended already.
    pub async fn shutdown(&self) -> io::Result<()> {
        let id = self.inner.id();
        self.wait(Awaited::Room, |worker| worker.shutdown(id)).await
    }

    /// Closes both directions, and waits, for at most the linger time, until the peer has received everything that was
    /// sent. The peer can read the code and the reason. If the future is dropped before, the worker closes the
    /// connection in the background.
    ///
    /// # Errors
    ///
    /// See [`Connection::close`](crate::Connection::close).
    pub async fn close(&self, code: u32, reason: &str) -> io::Result<()> {
        /// Releases the connection at the end of the future.
        struct Closing<'c>(&'c crate::Connection, u32, &'c str);

        impl Drop for Closing<'_> {
            fn drop(&mut self) {
                let Self(connection, code, reason) = *self;
                // In a child of the worker's process, there is nothing to close.
                _ = connection.handle().with(|worker| worker.close(connection.id(), code, reason));
            }
        }

        self.inner.mark_closed()?;
        let closing = Closing(&self.inner, code, reason);
        let id = self.inner.id();
        self.inner.handle().with(|worker| worker.begin_close(id, code, reason))?;
        let outcome = self.wait(Awaited::Room, |worker| worker.outcome(id)).await;
        drop(closing);
        outcome
    }

    /// Returns the code and the reason that the peer passed when it closed the connection.
    pub fn peer_close(&self) -> Option<(u32, String)> {
        self.inner.peer_close()
    }

    /// Returns the transport and the traffic counters of the connection.
    ///
    /// # Errors
    ///
    /// The connection has been closed.
    pub fn stats(&self) -> io::Result<Stats> {
        self.inner.stats()
    }

    /// Returns the local address and the peer's address.
    ///
    /// # Errors
    ///
    /// The connection has been closed.
    pub fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        self.inner.addresses()
    }

    /// Allocates a region: see [`Connection::region`](crate::Connection::region).
    ///
    /// # Errors
    ///
    /// See [`Connection::region`](crate::Connection::region).
    pub fn region(&self, length: usize) -> io::Result<Region> {
        self.inner.region(length)
    }

    /// Begins a batch of transfers between this side's regions and the peer's.
    pub fn batch(&self) -> Batch<'_> {
        Batch { connection: &self.inner, inner: self.inner.batch() }
    }

    /// Returns the connection for calls that block, and for [`Grant`](crate::Grant). The messages and notifications that
    /// this object has set aside cannot be received there.
    pub fn as_blocking(&self) -> &crate::Connection {
        &self.inner
    }

    pub(super) fn into_inner(self) -> crate::Connection {
        self.inner
    }

    fn sorted<T>(&self, act: impl FnOnce(&mut Sorted) -> T) -> T {
        act(&mut self.sorted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Repeats an operation until it does not return `WouldBlock`.
    async fn wait<T>(&self, what: Awaited, attempt: impl FnMut(&mut Worker) -> io::Result<T>) -> io::Result<T> {
        Waiting::new(self.inner.handle(), Source::Connection(self.inner.id(), what), attempt).await
    }
}

/// Limits a future to a share of the time that is left.
async fn within<T>(
    deadline: Option<Instant>,
    share: u32,
    future: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let Some(deadline) = deadline else { return future.await };
    let left = deadline.saturating_duration_since(Instant::now()) / share;
    // tokio reports a missing timer only by a panic.
    let limit = catch_unwind(|| sleep(left)).map_err(|_| {
        let text = "cannot limit the time: the tokio runtime has no timer; call enable_time() on its builder";
        io::Error::new(io::ErrorKind::Unsupported, text)
    })?;
    tokio::select! {
        biased;
        result = future => result,
        () = limit => Err(io::ErrorKind::TimedOut.into()),
    }
}
