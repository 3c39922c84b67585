//! Messages over a connection.

mod attempts;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::memory::Buf;
use crate::worker::{Awaited, ConnectionId, Handle, ListenId, Source, Stats, Worker, would_block};

pub(crate) use attempts::Attempts;

/// A connection that transports messages of any length, and preserves their boundaries and order.
///
/// Calls block as socket calls do. Those whose names begin with `try_` return `WouldBlock` instead. Several threads may
/// call all of these methods at the same time.
///
/// - `send` returns when the message is accepted. The program may then reuse its buffer.
/// - [`Connection::flush`] returns when the peer's NIC has received all messages, including those that it reads from
///   this side's memory.
/// - [`Connection::close`] returns when the peer's worker has received all messages.
///
/// Dropping a connection closes it with code 0, and waits for the peer's acknowledgement, at most for the linger time.
pub struct Connection {
    handle: Handle,
    id: ConnectionId,
    /// Whether dropping the connection waits for the peer's acknowledgement.
    pub(crate) lingers: bool,
    is_closed: AtomicBool,
}

/// Accepts connections.
#[derive(Debug)]
pub struct Acceptor {
    handle: Handle,
    id: ListenId,
    address: SocketAddr,
}

impl Acceptor {
    /// Listens with the default worker of the process, for RDMA and for TCP at the same port.
    ///
    /// # Errors
    ///
    /// The address is in use, or does not belong to this host.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Acceptor> {
        Acceptor::bind_on(&Handle::global()?, address)
    }

    /// Listens with the given worker.
    ///
    /// # Errors
    ///
    /// See [`Acceptor::bind`].
    pub fn bind_on(handle: &Handle, address: impl ToSocketAddrs) -> io::Result<Acceptor> {
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
        for address in address.to_socket_addrs()? {
            let listened = handle.with(|worker| {
                let id = worker.listen(address)?;
                Ok((id, worker.local_addr(id).unwrap_or(address)))
            })?;
            match listened {
                Ok((id, address)) => return Ok(Acceptor { handle: handle.clone(), id, address }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn id(&self) -> ListenId {
        self.id
    }

    /// The address, with its port.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the acceptor was closed.
    pub fn accept(&self) -> io::Result<Connection> {
        self.accept_until(None)
    }

    /// Returns the next connection, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if no connection is pending.
    pub fn try_accept(&self) -> io::Result<Connection> {
        let id = self.handle.try_now(|worker| worker.try_accept(self.id))?;
        Ok(Connection::new(self.handle.clone(), id))
    }

    /// Waits for the next connection until the deadline.
    ///
    /// # Errors
    ///
    /// `TimedOut` if no connection arrived in time.
    pub fn accept_until(&self, deadline: Option<Instant>) -> io::Result<Connection> {
        let mut call = None;
        let accepted = self.handle.wait_aside(deadline, |worker, waker| {
            drop(call.take().and_then(|call| worker.remove_call(call)));
            let accepted = worker.try_accept(self.id);
            call = would_block(&accepted).then(|| worker.register_call(Source::Acceptors, waker));
            accepted
        });
        if let Some(call) = call {
            // The deadline has passed.
            drop(self.handle.with(|worker| worker.remove_call(call))?);
        }
        Ok(Connection::new(self.handle.clone(), accepted?))
    }

    /// Stops listening. Connections that are established already can still be accepted; then calls return
    /// `NotConnected`.
    pub fn stop(&self) {
        // In a child of the worker's process, there is nothing to end.
        _ = self.handle.with(|worker| worker.stop_listening(self.id));
    }

    /// Stops listening, and closes the connections that were not accepted. Calls that wait for a connection, and later
    /// ones, return `NotConnected`. Dropping the acceptor does the same.
    pub fn close(&self) {
        // In a child of the worker's process, there is nothing to end.
        _ = self.handle.with(|worker| worker.unlisten(self.id));
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.close();
    }
}

impl Connection {
    pub(crate) fn new(handle: Handle, id: ConnectionId) -> Connection {
        Connection { handle, id, lingers: true, is_closed: AtomicBool::new(false) }
    }

    /// Connects with the default worker of the process: over RDMA if both sides support it, otherwise over TCP.
    /// [`Connection::stats`] returns the transport and the reason for it.
    ///
    /// # Errors
    ///
    /// See `std::net::TcpStream::connect`. If there are several addresses, the error is that of the last address.
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<Connection> {
        Connection::connect_on(&Handle::global()?, address, None)
    }

    /// Connects with the given worker. If `time` is given, it limits how long this takes.
    ///
    /// # Errors
    ///
    /// `TimedOut`; otherwise see [`Connection::connect`].
    pub fn connect_on(handle: &Handle, address: impl ToSocketAddrs, time: Option<Duration>) -> io::Result<Connection> {
        let deadline = time.and_then(after);
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
        for address in address.to_socket_addrs()? {
            match Connection::connect_to(handle, address, deadline) {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Creates a connection within this process and returns both ends, as `UnixStream::pair` does. Both belong to the
    /// default worker.
    ///
    /// # Errors
    ///
    /// See [`Connection::pair_on`].
    pub fn pair() -> io::Result<(Connection, Connection)> {
        Connection::pair_on(&Handle::global()?)
    }

    /// Creates a connection of a worker with itself, through 127.0.0.1, and returns both ends. It uses RDMA if the
    /// worker's transport permits RDMA and 127.0.0.1 leads to a device such as softrnic's `soft0`; otherwise it uses TCP.
    ///
    /// # Errors
    ///
    /// See [`Acceptor::bind_on`] and [`Connection::connect_on`].
    pub fn pair_on(handle: &Handle) -> io::Result<(Connection, Connection)> {
        let acceptor = Acceptor::bind_on(handle, (Ipv4Addr::LOCALHOST, 0))?;
        let first = Connection::connect_on(handle, acceptor.local_addr(), None)?;
        let (local, peer) = first.addresses()?;
        loop {
            // Other programs of this host can connect too.
            let second = acceptor.accept()?;
            if second.addresses().is_ok_and(|ends| ends == (peer, local)) {
                return Ok((first, second));
            }
        }
    }

    fn connect_to(handle: &Handle, address: SocketAddr, deadline: Option<Instant>) -> io::Result<Connection> {
        let mut attempts = Attempts::new(handle, address)?;
        while let Some((started, share)) = attempts.start() {
            // Each transport gets an equal share of the remaining time, so that TCP still has time if a device does not
            // respond.
            let deadline = deadline.map(|deadline| {
                let now = Instant::now();
                now + deadline.saturating_duration_since(now) / share
            });
            let connected = started.and_then(|mut connection| {
                let established =
                    connection.wait(Awaited::Message, deadline, |worker| worker.has_established(connection.id));
                established.inspect_err(|_| connection.lingers = false).map(|()| connection)
            });
            if let Some(result) = attempts.end(connected) {
                return result;
            }
        }
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sends a copy of a message. Blocks while more bytes than the high-water mark wait to be sent.
    ///
    /// # Errors
    ///
    /// `BrokenPipe` after either side has closed; `InvalidInput` if the peer does not accept messages of this length;
    /// otherwise the reason why the connection ended.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        self.handle.wait(self.id, Awaited::Room, None, |worker| worker.try_send(self.id, message))
    }

    /// Sends a message, or returns `WouldBlock` instead of blocking.
    ///
    /// # Errors
    ///
    /// `WouldBlock`; otherwise see [`Connection::send`].
    pub fn try_send(&self, message: &[u8]) -> io::Result<()> {
        self.handle.try_now(|worker| worker.try_send(self.id, message))
    }

    /// Sends a message from a buffer of [`Connection::alloc`], without copying it.
    ///
    /// # Errors
    ///
    /// See [`Connection::send`].
    pub fn send_buf(&self, message: Buf) -> io::Result<()> {
        self.send_buf_until(message, None)
    }

    /// Sends a message from a buffer. Blocks while more bytes than the high-water mark wait to be sent, at most until
    /// the deadline.
    ///
    /// # Errors
    ///
    /// `TimedOut` if the message was not accepted in time; otherwise see [`Connection::send`].
    pub fn send_buf_until(&self, message: Buf, deadline: Option<Instant>) -> io::Result<()> {
        let mut message = Some(message);
        self.handle.wait(self.id, Awaited::Room, deadline, |worker| send_kept(worker, self.id, &mut message))
    }

    /// Sends a message from a buffer, or returns the buffer instead of blocking.
    ///
    /// # Errors
    ///
    /// `WouldBlock`; otherwise see [`Connection::send`]. The error contains the buffer.
    pub fn try_send_buf(&self, message: Buf) -> Result<(), (io::Error, Buf)> {
        let mut message = Some(message);
        let sent = self.handle.try_now(|worker| send_kept(worker, self.id, &mut message));
        sent.map_err(|error| (error, message.unwrap_or_else(|| Buf::on_heap(0))))
    }

    /// Allocates a buffer for [`Connection::send_buf`], in memory that is registered with the connection's device.
    pub fn alloc(&self, length: usize) -> Buf {
        self.handle.with(|worker| worker.alloc(self.id, length)).unwrap_or_else(|_| Buf::on_heap(length))
    }

    /// Waits for the next message. Returns `None` after the last one.
    ///
    /// # Errors
    ///
    /// The reason why the connection ended: `ConnectionReset` if the peer died, `TimedOut` if it no longer responds.
    pub fn recv(&self) -> io::Result<Option<Buf>> {
        self.recv_until(None)
    }

    /// Waits for the next message until the deadline.
    ///
    /// # Errors
    ///
    /// `TimedOut`; otherwise see [`Connection::recv`].
    pub fn recv_until(&self, deadline: Option<Instant>) -> io::Result<Option<Buf>> {
        unless_end(self.handle.wait(self.id, Awaited::Message, deadline, |worker| worker.try_recv(self.id)))
    }

    /// Waits for the next message and copies it into `out`. Returns its length, or `None` after the last one.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the message is longer than `out`: the message stays queued, and the error text contains its
    /// length. Otherwise see [`Connection::recv`].
    pub fn recv_into(&self, out: &mut [u8]) -> io::Result<Option<usize>> {
        unless_end(self.handle.wait(self.id, Awaited::Message, None, |worker| worker.try_recv_into(self.id, out)))
    }

    /// Returns the next message without waiting. Returns `None` after the last one.
    ///
    /// # Errors
    ///
    /// `WouldBlock`; otherwise see [`Connection::recv`].
    pub fn try_recv(&self) -> io::Result<Option<Buf>> {
        unless_end(self.handle.try_now(|worker| worker.try_recv(self.id)))
    }

    /// Waits until the peer's NIC has received everything that was sent.
    ///
    /// # Errors
    ///
    /// The reason why the connection ended, if it has ended already.
    pub fn flush(&self) -> io::Result<()> {
        self.flush_until(None)
    }

    /// Waits until the peer's NIC has received everything that was sent, or until the deadline.
    ///
    /// # Errors
    ///
    /// `TimedOut`; otherwise see [`Connection::flush`].
    pub fn flush_until(&self, deadline: Option<Instant>) -> io::Result<()> {
        self.handle.wait(self.id, Awaited::Room, deadline, |worker| worker.has_flushed(self.id))
    }

    /// Ends this side's sending. After the last message, the peer receives `None`. This side can still receive.
    ///
    /// # Errors
    ///
    /// The reason why the connection ended, if it has ended already.
    pub fn shutdown(&self) -> io::Result<()> {
        self.handle.wait(self.id, Awaited::Room, None, |worker| worker.shutdown(self.id))
    }

    /// Closes both directions, and waits, for at most the linger time, until the peer has received everything that was
    /// sent. The peer can read the code and the reason. Calls of other threads that wait for this connection, and later
    /// calls, return an error: `BrokenPipe` if they send, otherwise `NotConnected`.
    ///
    /// # Errors
    ///
    /// `TimedOut` if the peer has not acknowledged everything within the linger time; `NotConnected` if the connection
    /// was closed before. If the connection ended earlier, the reason for its end.
    pub fn close(&self, code: u32, reason: &str) -> io::Result<()> {
        self.end(code, reason, self.lingers)
    }

    /// Closes both directions without waiting. Messages that were sent before still arrive, if the worker continues to
    /// run, within the linger time.
    pub fn abandon(&self, code: u32, reason: &str) {
        // Fails only if the connection was closed before.
        _ = self.end(code, reason, false);
    }

    /// Marks the connection as closed.
    ///
    /// # Errors
    ///
    /// `NotConnected` if it was closed before.
    pub(crate) fn mark_closed(&self) -> io::Result<()> {
        if self.is_closed.swap(true, Ordering::Relaxed) { Err(io::ErrorKind::NotConnected.into()) } else { Ok(()) }
    }

    fn end(&self, code: u32, reason: &str, lingers: bool) -> io::Result<()> {
        self.mark_closed()?;
        let mut outcome = Ok(());
        if lingers {
            self.handle.with(|worker| worker.begin_close(self.id, code, reason))?;
            // The worker ends the connection after the linger time, so no deadline is needed here.
            outcome = self.handle.wait(self.id, Awaited::Room, None, |worker| worker.outcome(self.id));
        }
        self.handle.with(|worker| worker.close(self.id, code, reason))?;
        outcome
    }

    /// Returns the code and the reason that the peer passed when it closed the connection.
    pub fn peer_close(&self) -> Option<(u32, String)> {
        self.handle.with(|worker| worker.peer_close(self.id)).ok()?
    }

    /// Returns the transport and the traffic counters of the connection.
    ///
    /// # Errors
    ///
    /// The connection was never established.
    pub fn stats(&self) -> io::Result<Stats> {
        self.handle.with(|worker| worker.stats(self.id))?
    }

    /// Returns the local address and the peer's address.
    ///
    /// # Errors
    ///
    /// The connection was never established.
    pub fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        self.handle.with(|worker| worker.addresses(self.id))?
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.id
    }

    /// Runs an operation that waits for one direction.
    pub(crate) fn wait<T>(
        &self,
        what: Awaited,
        deadline: Option<Instant>,
        attempt: impl FnMut(&mut Worker) -> io::Result<T>,
    ) -> io::Result<T> {
        self.handle.wait(self.id, what, deadline, attempt)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !*self.is_closed.get_mut()
            && let Err(error) = self.end(0, "", self.lingers)
        {
            rdma_mummy_sys::log!(debug, "a connection was not closed properly: {error}");
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Sends a message, or leaves it in `message`.
fn send_kept(worker: &mut Worker, id: ConnectionId, message: &mut Option<Buf>) -> io::Result<()> {
    let Some(buffer) = message.take() else { return Ok(()) };
    worker.try_send_buf(id, buffer).map_err(|(error, buffer)| {
        *message = Some(buffer);
        error
    })
}

/// Converts the error `UnexpectedEof`, which means the end of the messages, to `None`.
pub(crate) fn unless_end<T>(received: io::Result<T>) -> io::Result<Option<T>> {
    match received {
        Ok(message) => Ok(Some(message)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// The deadline after this time; `None` if the clock does not reach it.
pub(crate) fn after(time: Duration) -> Option<Instant> {
    Instant::now().checked_add(time)
}
