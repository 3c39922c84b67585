//! Accepts connections.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Instant;

use super::Connection;
use super::descriptor;
use super::ready::Ready;
use crate::worker::{ConnectionId, Handle, ListenId, Registration, Source, Wait, Worker, would_block};

/// Accepts connections.
#[derive(Debug)]
pub struct Acceptor {
    handle: Handle,
    id: ListenId,
    address: SocketAddr,
    ready: OnceLock<Ready>,
    /// The waker that was registered last, of the descriptor or of a task.
    polled: Mutex<Option<Registration>>,
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
                Ok((id, address)) => {
                    let (handle, ready, polled) = (handle.clone(), OnceLock::new(), Mutex::default());
                    return Ok(Acceptor { handle, id, address, ready, polled });
                }
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
        let Some(ready) = self.ready.get() else {
            let id = self.handle.try_now(|worker| worker.try_accept(self.id))?;
            return Ok(Connection::new(self.handle.clone(), id));
        };
        self.accept_or_wake(ready.waker(Wait::Read), |worker, _| {
            let is_due = worker.has_accepted(self.id);
            ready.set(Wait::Read, is_due);
            !is_due
        })
    }

    /// Returns a descriptor for event loops such as `poll` or mio. The first call creates it. It is readable while
    /// [`try_accept`](Self::try_accept) may return a connection, and after the acceptor was closed. So accept until
    /// `WouldBlock`, and then wait for the descriptor.
    ///
    /// # Errors
    ///
    /// The process has no descriptors left.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        if self.ready.get().is_none() {
            descriptor(&self.ready)?;
            self.wait_if_empty()?;
        }
        descriptor(&self.ready)
    }

    /// Makes the new descriptor unreadable until a connection is pending.
    fn wait_if_empty(&self) -> io::Result<()> {
        let Some(ready) = self.ready.get() else { return Ok(()) };
        let (mut waker, mut _before) = (Some(ready.waker(Wait::Read)), None);
        self.handle.with(|worker| {
            if !worker.has_accepted(self.id) {
                ready.set(Wait::Read, false);
                let mut polled = self.polled.lock().unwrap_or_else(PoisonError::into_inner);
                _before = polled.take().and_then(|before| worker.remove_call(before));
                *polled = waker.take().map(|waker| worker.register_call(Source::Acceptor(self.id), waker));
            }
        })
    }

    /// Returns the descriptor, if the program has it.
    pub(crate) fn known_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.ready.get().map(Ready::as_fd)
    }

    /// Accepts the next connection, without waiting. If `needs_waker` returns true for the result, the worker calls the
    /// waker when a connection may be pending. The waker replaces the one of the last call.
    pub(crate) fn accept_or_wake(
        &self,
        waker: Waker,
        needs_waker: impl FnOnce(&mut Worker, &io::Result<ConnectionId>) -> bool,
    ) -> io::Result<Connection> {
        // Dropped after the lock is released.
        let (mut waker, mut _before) = (Some(waker), None);
        let accepted = self.handle.try_or_wake(
            true,
            |worker| worker.try_accept(self.id),
            |worker, accepted| {
                let waker = if needs_waker(worker, accepted) { waker.take() } else { None };
                let mut polled = self.polled.lock().unwrap_or_else(PoisonError::into_inner);
                _before = polled.take().and_then(|before| worker.remove_call(before));
                *polled = waker.map(|waker| worker.register_call(Source::Acceptor(self.id), waker));
            },
        );
        Ok(Connection::new(self.handle.clone(), accepted?))
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
            call = would_block(&accepted).then(|| worker.register_call(Source::Acceptor(self.id), waker.clone()));
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
        let polled = self.polled.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(polled) = polled {
            // In a child of the worker's process, there is nothing to remove.
            drop(self.handle.with(|worker| worker.remove_call(polled)));
        }
    }
}
