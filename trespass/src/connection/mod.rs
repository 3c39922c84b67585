//! Messages over a connection.

mod acceptor;
mod attempts;
mod ready;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use self::ready::Ready;
use crate::memory::Buf;
use crate::worker::{Awaited, ConnectionId, Handle, Stats, Wait, Worker, would_block};

pub use acceptor::Acceptor;
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
/// ```
/// # fn main() -> std::io::Result<()> {
/// use trespass::{Acceptor, Connection};
///
/// let acceptor = Acceptor::bind("127.0.0.1:0")?;
/// let client = Connection::connect(acceptor.local_addr())?;
/// let server = acceptor.accept()?;
///
/// client.send(b"hello")?;
/// let mut buf = client.alloc(1 << 20); // registered with the device, so that sending it copies nothing
/// buf[..5].copy_from_slice(b"world");
/// client.send_buf(buf)?;
///
/// assert_eq!(server.recv()?.as_deref(), Some(&b"hello"[..]));
/// assert_eq!(server.recv()?.map(|message| message.len()), Some(1 << 20));
/// client.shutdown()?;
/// assert!(server.recv()?.is_none()); // the end of the messages
/// # Ok(())
/// # }
/// ```
///
/// Dropping a connection closes it with code 0, and waits for the peer's acknowledgement, at most for the linger time.
pub struct Connection {
    handle: Handle,
    id: ConnectionId,
    /// Whether dropping the connection waits for the peer's acknowledgement.
    pub(crate) lingers: bool,
    is_closed: AtomicBool,
    ready: OnceLock<Ready>,
}

impl Connection {
    pub(crate) fn new(handle: Handle, id: ConnectionId) -> Connection {
        Connection { handle, id, lingers: true, is_closed: AtomicBool::new(false), ready: OnceLock::new() }
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
        self.try_now(Wait::Write, |()| true, |worker| worker.try_send(self.id, message))
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
        let sent = self.try_now(Wait::Write, |()| true, |worker| send_kept(worker, self.id, &mut message));
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
        unless_end(self.try_now(Wait::Read, |_| false, |worker| worker.try_recv(self.id)))
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

    /// Returns a descriptor for event loops such as `poll` or mio. The first call creates it. It is readable while
    /// [`try_recv`](Self::try_recv) may return a message, and until it has returned the end or while it returns an error.
    /// It is also readable when a send that returned `WouldBlock` should be retried, and until it was retried. So call
    /// the `try_` methods until they return `WouldBlock`, and then wait for the descriptor. Only one thread may send, and
    /// only with `try_` methods: a send of another thread may take the signal.
    ///
    /// # Errors
    ///
    /// The process has no descriptors left.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        descriptor(&self.ready)
    }

    /// Returns the descriptor, if the program has it.
    pub(crate) fn known_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.ready.get().map(Ready::as_fd)
    }

    /// Tries an operation. If the program has the descriptor, it stays or becomes readable if another call is due, or the
    /// worker makes it readable when one is. After a result that `is_last`, no other call is due.
    pub(crate) fn try_now<T>(
        &self,
        what: Wait,
        is_last: impl FnOnce(&T) -> bool,
        attempt: impl FnMut(&mut Worker) -> io::Result<T>,
    ) -> io::Result<T> {
        let Some(ready) = self.ready.get() else { return self.handle.try_now(attempt) };
        self.handle.try_or_wake(what == Wait::Read, attempt, |worker, result| {
            let (goes_on, is_over) = match (what, result) {
                _ if would_block(result) => (false, false),
                (Wait::Read, Ok(received)) => (worker.can_receive(self.id), is_last(received)),
                (Wait::Write, Ok(sent)) => (worker.can_send(self.id), is_last(sent)),
                (Wait::Read, Err(error)) => (true, error.kind() == io::ErrorKind::UnexpectedEof),
                // A send that has failed fails again; the receiving call reports the end of the connection.
                (Wait::Write, Err(_)) => (false, true),
            };
            ready.set(what, goes_on && !is_over);
            if !goes_on && !is_over {
                worker.register_task(self.id, what, &mut Some(ready.waker(what)));
            }
        })
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

/// Returns the descriptor of a connection or an acceptor, which is created if it does not exist.
fn descriptor(ready: &OnceLock<Ready>) -> io::Result<BorrowedFd<'_>> {
    if ready.get().is_none() {
        // Another thread may create one meanwhile.
        _ = ready.set(Ready::new()?);
    }
    ready.get().map(Ready::as_fd).ok_or_else(|| io::ErrorKind::Other.into())
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
