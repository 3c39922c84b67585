//! A stream of bytes over a connection.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use crate::connection::{Connection, after};
use crate::memory::Buf;
use crate::worker::{Handle, Stats, Wait, Worker};

/// A stream of bytes, like `std::net::TcpStream`. It uses RDMA if both sides support it, otherwise TCP.
///
/// Dropping the last clone closes the stream. A blocking stream then waits until the peer's worker has received
/// everything, at most for the linger time. For a non-blocking stream, the worker waits in the background instead.
#[derive(Clone, Debug)]
pub struct Stream {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    connection: Connection,
    /// The time-out of reads, and of writes, in nanoseconds; 0 means no time-out.
    read_timeout: AtomicU64,
    write_timeout: AtomicU64,
    is_nonblocking: AtomicBool,
    /// Whether a task has polled the stream.
    is_polled: AtomicBool,
    is_read_shut: AtomicBool,
}

impl From<Connection> for Stream {
    fn from(connection: Connection) -> Stream {
        Stream {
            inner: Arc::new(Inner {
                connection,
                read_timeout: AtomicU64::new(0),
                write_timeout: AtomicU64::new(0),
                is_nonblocking: AtomicBool::new(false),
                is_polled: AtomicBool::new(false),
                is_read_shut: AtomicBool::new(false),
            }),
        }
    }
}

impl Stream {
    /// Connects, as `TcpStream::connect` does.
    ///
    /// # Errors
    ///
    /// See [`Connection::connect`].
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<Stream> {
        Connection::connect(address).map(Stream::from)
    }

    /// Connects within a time limit.
    ///
    /// # Errors
    ///
    /// `TimedOut`; otherwise see [`Connection::connect`].
    pub fn connect_timeout(address: &SocketAddr, time: Duration) -> io::Result<Stream> {
        Connection::connect_on(&Handle::global()?, address, Some(time)).map(Stream::from)
    }

    /// Connects with the given worker.
    ///
    /// # Errors
    ///
    /// See [`Connection::connect`].
    pub fn connect_on(handle: &Handle, address: impl ToSocketAddrs) -> io::Result<Stream> {
        Connection::connect_on(handle, address, None).map(Stream::from)
    }

    /// The peer's address.
    ///
    /// # Errors
    ///
    /// Currently returns no errors.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.inner.connection.addresses().map(|(_, peer)| peer)
    }

    /// This side's address.
    ///
    /// # Errors
    ///
    /// Currently returns no errors.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.connection.addresses().map(|(local, _)| local)
    }

    /// Shuts down reading, writing, or both. After writing is shut down, the peer reads the remaining bytes, then the
    /// end of the stream.
    ///
    /// # Errors
    ///
    /// The reason why the connection ended, if it has ended already.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Write {
            self.inner.is_read_shut.store(true, Ordering::Relaxed);
        }
        if how == Shutdown::Read { Ok(()) } else { self.inner.connection.shutdown() }
    }

    /// Limits the time that a read waits; `None` means no limit.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a limit of zero.
    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        set(&self.inner.read_timeout, limit)
    }

    /// Limits the time that a write waits; `None` means no limit.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a limit of zero.
    pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        set(&self.inner.write_timeout, limit)
    }

    /// Returns the limit that [`Stream::set_read_timeout`] has set.
    pub fn read_timeout(&self) -> Option<Duration> {
        get(&self.inner.read_timeout)
    }

    /// Returns the limit that [`Stream::set_write_timeout`] has set.
    pub fn write_timeout(&self) -> Option<Duration> {
        get(&self.inner.write_timeout)
    }

    /// Makes reads and writes return `WouldBlock` instead of waiting. The stream's descriptor ([`AsFd`]) is readable while
    /// a read may return bytes, and until it has returned the end. It is also readable when a write should be retried:
    /// after `WouldBlock`, or after a write of fewer bytes than given. So write first, and then wait for the descriptor.
    ///
    /// # Errors
    ///
    /// The process has no descriptors left.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        if nonblocking {
            self.inner.connection.descriptor()?;
        }
        self.inner.is_nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }

    /// Sets how many written bytes may wait to be sent before a write waits, as `SO_SNDBUF` does for a socket. The
    /// default is [`Options::send_high_water`](crate::Options::send_high_water). A protocol that sends several streams
    /// in one, such as HTTP/2, needs less: what waits delays the other streams, and cannot be withdrawn.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the stream has ended.
    pub fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
        let (handle, id) = (self.inner.connection.handle(), self.inner.connection.id());
        handle.with(|worker| worker.set_send_buffer(id, bytes))?
    }

    /// Does nothing, because a small write waits only for the peer's credit and never for a timer.
    ///
    /// # Errors
    ///
    /// None.
    pub fn set_nodelay(&self, _: bool) -> io::Result<()> {
        Ok(())
    }

    /// Always returns true: see [`Stream::set_nodelay`].
    ///
    /// # Errors
    ///
    /// None.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(true)
    }

    /// Returns another handle to the same stream.
    ///
    /// # Errors
    ///
    /// None.
    pub fn try_clone(&self) -> io::Result<Stream> {
        Ok(self.clone())
    }

    /// Returns the transport of the stream, the reason for it, and the traffic counters.
    ///
    /// # Errors
    ///
    /// Currently returns no errors.
    pub fn stats(&self) -> io::Result<Stats> {
        self.inner.connection.stats()
    }

    /// Waits until the peer's NIC has received everything that was written.
    ///
    /// # Errors
    ///
    /// The reason why the connection ended, if it has ended already.
    pub fn flush_all(&self) -> io::Result<()> {
        self.inner.connection.flush()
    }

    /// Reads without waiting, for a program with its own event loop. Also returns whether another read would return
    /// bytes, the end or an error. If not, the worker calls `waker` when one would; each direction has one waker, the
    /// last one. The waker must not wait for a lock that a caller of this stream holds.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if no bytes have arrived; otherwise the reason why the connection ended.
    pub fn read_or_wake(&self, bytes: &mut [u8], waker: &Waker) -> (io::Result<usize>, bool) {
        self.try_or_wake(Wait::Read, waker, |worker| self.read_some(worker, bytes))
    }

    /// Writes without waiting, as [`Stream::read_or_wake`] reads. Also returns whether another write would accept bytes
    /// or return an error.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room; otherwise the reason why the connection accepts no bytes.
    pub fn write_or_wake(&self, parts: &[IoSlice<'_>], waker: &Waker) -> (io::Result<usize>, bool) {
        self.try_or_wake(Wait::Write, waker, |worker| self.write_parts(worker, parts))
    }

    /// Makes the worker call `waker`, once, at a later event of the connection if a read would then return something, also
    /// if one would do so now. It replaces the waker of [`Stream::read_or_wake`], and may be called by it. Returns a number
    /// that grows with each arrival.
    pub fn wake_on_arrival(&self, waker: &Waker) -> u64 {
        let (handle, id) = (self.inner.connection.handle(), self.inner.connection.id());
        // Cloned before the worker is locked, and dropped after the lock is released.
        let mut waker = Some(waker.clone());
        let arrived = handle.with_quietly(|worker| {
            let stats = worker.stats(id)?;
            worker.register_task(id, Wait::Read, &mut waker);
            Ok(stats.receives + stats.rendezvous_received)
        });
        // Nothing arrives after a close, nor in a child of the worker's process.
        arrived.and_then(|arrived| arrived).unwrap_or_default()
    }

    /// Whether all bytes were read and the end is next. Does not wait.
    ///
    /// # Errors
    ///
    /// The reason why the connection ended, if a read would return it.
    pub fn is_at_end(&self) -> io::Result<bool> {
        if self.inner.is_read_shut.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let (handle, id) = (self.inner.connection.handle(), self.inner.connection.id());
        handle.with(|worker| worker.is_at_end(id))?
    }

    fn try_or_wake(
        &self,
        what: Wait,
        waker: &Waker,
        attempt: impl FnMut(&mut Worker) -> io::Result<usize>,
    ) -> (io::Result<usize>, bool) {
        self.inner.is_polled.store(true, Ordering::Relaxed);
        let (handle, id) = (self.inner.connection.handle(), self.inner.connection.id());
        // Cloned before the worker is locked, and dropped after the lock is released.
        let (mut waker, mut is_ready) = (Some(waker.clone()), false);
        let result = handle.try_or_wake(what == Wait::Read, attempt, |worker, result| {
            // A write may also lack memory.
            is_ready = !crate::worker::would_block(result)
                && match what {
                    Wait::Read => worker.can_receive(id),
                    Wait::Write => worker.can_send(id),
                };
            if !is_ready {
                worker.register_task(id, what, &mut waker);
            }
        });
        (result, is_ready)
    }

    /// Tries an operation. If the operation would block, registers a waker, which the worker calls when a retry may
    /// succeed.
    #[cfg(feature = "tokio")]
    pub(crate) fn attempt<T>(
        &self,
        what: Wait,
        waker: &Waker,
        attempt: impl FnMut(&mut Worker) -> io::Result<T>,
    ) -> io::Result<T> {
        self.inner.is_polled.store(true, Ordering::Relaxed);
        let (handle, id) = (self.inner.connection.handle(), self.inner.connection.id());
        // A read returns what has arrived, as with a socket. A program that writes without a pause would otherwise read
        // what its peer has sent only after the task that drives the worker has run.
        // Cloned before the worker is locked, and dropped after the lock is released.
        let mut waker = Some(waker.clone());
        handle.try_or_wake(what == Wait::Read, attempt, |worker, result| {
            if crate::worker::would_block(result) {
                worker.register_task(id, what, &mut waker);
            }
        })
    }

    /// Reads or writes, at most `most` bytes.
    fn call(
        &self,
        what: Wait,
        timeout: &AtomicU64,
        most: usize,
        attempt: impl FnMut(&mut Worker) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if most == 0 {
            return Ok(0);
        }
        if self.inner.is_nonblocking.load(Ordering::Relaxed) {
            // After the end, no read is due. A program that has written everything waits for no other write.
            let is_last = |count: &usize| if what == Wait::Read { *count == 0 } else { *count == most };
            return self.inner.connection.try_now(what, is_last, attempt);
        }
        let deadline = get(timeout).and_then(after);
        self.inner.connection.wait(what.into(), deadline, attempt)
    }

    /// Takes the next bytes without a copy. Returns `None` at the end.
    pub(super) fn take_chunk(&self) -> io::Result<Option<Buf>> {
        let mut chunk = None;
        self.call(Wait::Read, &self.inner.read_timeout, usize::MAX, |worker| {
            chunk = self.chunk(worker)?;
            Ok(chunk.as_ref().map_or(0, |chunk| chunk.len()))
        })?;
        Ok(chunk)
    }

    /// Takes the next bytes without a copy. Returns `None` at the end.
    pub(crate) fn chunk(&self, worker: &mut Worker) -> io::Result<Option<Buf>> {
        if self.inner.is_read_shut.load(Ordering::Relaxed) {
            Ok(None)
        } else {
            worker.try_take(self.inner.connection.id())
        }
    }

    fn read_some(&self, worker: &mut Worker, bytes: &mut [u8]) -> io::Result<usize> {
        if self.inner.is_read_shut.load(Ordering::Relaxed) {
            Ok(0)
        } else {
            worker.try_read(self.inner.connection.id(), bytes)
        }
    }

    pub(crate) fn write_some(&self, worker: &mut Worker, bytes: &[u8]) -> io::Result<usize> {
        worker.try_write(self.inner.connection.id(), bytes)
    }

    /// Writes the parts in order, and stops after a partial write.
    pub(crate) fn write_parts(&self, worker: &mut Worker, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut count = 0;
        for part in parts.iter().filter(|part| !part.is_empty()) {
            match self.write_some(worker, part) {
                Ok(written) => {
                    count += written;
                    if written < part.len() {
                        break;
                    }
                }
                Err(error) if count == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(count)
    }

    /// Reads into memory that may be uninitialised.
    #[cfg(feature = "tokio")]
    pub(crate) fn read_to(&self, worker: &mut Worker, bytes: &mut impl bytes::BufMut) -> io::Result<usize> {
        if self.inner.is_read_shut.load(Ordering::Relaxed) {
            Ok(0)
        } else {
            worker.try_read_to(self.inner.connection.id(), bytes)
        }
    }

    /// The connection whose bytes these are. A program uses it to end the stream with a code, and to read that of the peer.
    pub fn connection(&self) -> &Connection {
        &self.inner.connection
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.is_nonblocking.load(Ordering::Relaxed) || self.is_polled.load(Ordering::Relaxed) {
            self.connection.lingers = false;
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.call(Wait::Read, &self.inner.read_timeout, bytes.len(), |worker| self.read_some(worker, bytes))
    }

    fn read_vectored(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let most = parts.iter().map(|part| part.len()).sum();
        self.call(Wait::Read, &self.inner.read_timeout, most, |worker| {
            let mut count = 0;
            for part in parts.iter_mut().filter(|part| !part.is_empty()) {
                match self.read_some(worker, part) {
                    Ok(read) => count += read,
                    Err(error) if count == 0 => return Err(error),
                    Err(_) => break,
                }
                if count == 0 {
                    break;
                }
            }
            Ok(count)
        })
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.call(Wait::Write, &self.inner.write_timeout, bytes.len(), |worker| self.write_some(worker, bytes))
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let most = parts.iter().map(|part| part.len()).sum();
        self.call(Wait::Write, &self.inner.write_timeout, most, |worker| self.write_parts(worker, parts))
    }

    /// Does nothing, because written bytes are sent at once, as with sockets. [`Stream::flush_all`] waits until the
    /// peer's NIC has received them.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        (&*self).read(bytes)
    }

    fn read_vectored(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(parts)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the descriptor of a stream that is or was non-blocking. Another stream has no descriptor of its own. It returns
/// the worker's descriptor, which programs must not use.
impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let connection = &self.inner.connection;
        connection.known_descriptor().unwrap_or_else(|| connection.handle().fd())
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

fn set(place: &AtomicU64, limit: Option<Duration>) -> io::Result<()> {
    if limit == Some(Duration::ZERO) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the time-out is zero; pass None for no limit"));
    }
    let nanoseconds = limit.map_or(0, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
    place.store(nanoseconds, Ordering::Relaxed);
    Ok(())
}

fn get(place: &AtomicU64) -> Option<Duration> {
    match place.load(Ordering::Relaxed) {
        0 => None,
        nanoseconds => Some(Duration::from_nanos(nanoseconds)),
    }
}
