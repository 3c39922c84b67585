//! Transfers between this side's regions and the peer's.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::connection::Connection;
use crate::memory::{Ending, Progress, Transfer};
use crate::worker::{Awaited, ConnectionId, Worker};

use super::key::check_key;
use super::{Region, RegionKey};

/// A list of transfers that are submitted together.
#[derive(Debug)]
#[must_use = "a batch that is not submitted transfers nothing"]
pub struct Batch<'c> {
    connection: &'c Connection,
    transfers: io::Result<Vec<Transfer>>,
    progress: Arc<Progress>,
    has_gets: bool,
    notify: Option<u64>,
}

impl<'c> Batch<'c> {
    /// Adds a transfer that writes bytes of a local region to the peer's memory. The target begins at the given offset
    /// within the memory of the peer's key.
    pub fn put(self, from: (&Region, Range<usize>), to: (&RegionKey, u64)) -> Self {
        self.add(true, from, to)
    }

    /// Adds a transfer that reads bytes of the peer's memory into a local region. The source begins at the given offset
    /// within the memory of the peer's key.
    pub fn get(mut self, to: (&Region, Range<usize>), from: (&RegionKey, u64)) -> Self {
        self.has_gets = true;
        self.add(false, to, from)
    }

    /// Adds a notification of the peer, which it receives in order with the messages: [`Buf::notification`] returns the
    /// number. It arrives after the data of the puts. If the batch has gets, [`Ticket::wait`] sends it after they have
    /// completed.
    ///
    /// [`Buf::notification`]: crate::Buf::notification
    pub fn notify(mut self, number: u64) -> Self {
        self.notify = Some(number);
        self
    }

    /// Passes the transfers to the device, in order.
    ///
    /// # Errors
    ///
    /// A range is not within its region or key, or the key does not allow writing; in these cases nothing is
    /// transferred. Or the connection has ended.
    pub fn submit(self) -> io::Result<Ticket<'c>> {
        let (ticket, notify) = self.start()?;
        if let Some(number) = notify {
            send_note(ticket.connection, number)?;
        }
        Ok(ticket)
    }

    /// Passes the transfers to the device. Also returns the notification that is due now.
    pub(crate) fn start(self) -> io::Result<(Ticket<'c>, Option<u64>)> {
        let Self { connection, transfers, progress, has_gets, mut notify } = self;
        let transfers = transfers?;
        connection.handle().with(|worker| worker.transfer(connection.id(), transfers))??;
        let now = notify.take_if(|_| !has_gets);
        Ok((Ticket { connection, progress, notify }, now))
    }

    fn add(mut self, is_put: bool, (region, range): (&Region, Range<usize>), (key, offset): (&RegionKey, u64)) -> Self {
        let checked = region.check(&range).and_then(|()| check_key(key, offset, range.len(), is_put));
        match (&mut self.transfers, checked) {
            (Ok(transfers), Ok(())) => {
                let remote = (key.remote.address.wrapping_add(offset), key.remote.key);
                transfers.extend(Transfer::cut(
                    is_put,
                    (&region.memory, range.start),
                    range.len(),
                    remote,
                    &self.progress,
                ));
            }
            (Err(_), _) => {}
            (transfers, Err(error)) => *transfers = Err(error),
        }
        self
    }
}

fn send_note(connection: &Connection, number: u64) -> io::Result<()> {
    connection.wait(Awaited::Room, None, |worker| worker.try_notify(connection.id(), number))
}

/// A batch that was submitted.
#[derive(Debug)]
pub struct Ticket<'c> {
    connection: &'c Connection,
    progress: Arc<Progress>,
    /// The notification that is due when the transfers have completed.
    pub(crate) notify: Option<u64>,
}

impl Ticket<'_> {
    /// Whether all transfers have completed.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` if the peer's device has refused the key: the peer has revoked it, or has granted it to another
    /// connection. RDMA devices then end the connection too. Over iWARP,
    /// which acknowledges no writes, the following operations may fail instead. `ConnectionAborted` if the connection ended before.
    pub fn is_done(&self) -> io::Result<bool> {
        match self.progress.ended() {
            None => Ok(false),
            Some(Ending::Done) => Ok(true),
            Some(Ending::Refused) => {
                let text = "the peer's device has refused the key, and the connection has ended: the peer has revoked \
                            the key, or has granted it to another connection";
                Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
            }
            Some(Ending::Lost) => {
                let text = "the connection ended before the transfer had completed";
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, text))
            }
        }
    }

    /// Waits until all transfers have completed. The bytes of the puts are then in the peer's memory, and those of the
    /// gets are in this side's memory.
    ///
    /// # Errors
    ///
    /// See [`is_done`](Self::is_done).
    pub fn wait(self) -> io::Result<()> {
        self.connection.wait(Awaited::Transfer, None, |_| self.has_ended())?;
        match self.notify {
            Some(number) => send_note(self.connection, number),
            None => Ok(()),
        }
    }

    /// Returns `WouldBlock` until all transfers have completed.
    pub(crate) fn has_ended(&self) -> io::Result<()> {
        if self.is_done()? { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }
}

/// The progress of a transfer started by [`Worker::put`] or [`Worker::get`].
#[derive(Debug)]
pub struct Transferring {
    progress: Arc<Progress>,
}

impl Transferring {
    /// Returns `None` while the transfer is outstanding. Afterwards returns whether it succeeded.
    pub fn ended(&self) -> Option<bool> {
        self.progress.ended().map(|ending| ending == Ending::Done)
    }
}

impl Connection {
    /// Begins a batch of transfers between this side's regions and the peer's.
    pub fn batch(&self) -> Batch<'_> {
        Batch { connection: self, transfers: Ok(Vec::new()), progress: Arc::default(), has_gets: false, notify: None }
    }
}

impl Worker {
    /// Starts a transfer that writes bytes of a local region to the peer's memory. The target begins at the given
    /// offset within the memory of the peer's key.
    ///
    /// # Errors
    ///
    /// See [`Batch::submit`].
    pub fn put(
        &mut self,
        id: ConnectionId,
        from: (&Region, Range<usize>),
        to: (&RegionKey, u64),
    ) -> io::Result<Transferring> {
        self.begin(id, true, from, to)
    }

    /// Starts a transfer that reads bytes of the peer's memory into a local region. The source begins at the given
    /// offset within the memory of the peer's key.
    ///
    /// # Errors
    ///
    /// See [`Batch::submit`].
    pub fn get(
        &mut self,
        id: ConnectionId,
        to: (&Region, Range<usize>),
        from: (&RegionKey, u64),
    ) -> io::Result<Transferring> {
        self.begin(id, false, to, from)
    }

    fn begin(
        &mut self,
        id: ConnectionId,
        is_put: bool,
        (region, range): (&Region, Range<usize>),
        (key, offset): (&RegionKey, u64),
    ) -> io::Result<Transferring> {
        region.check(&range)?;
        check_key(key, offset, range.len(), is_put)?;
        let remote = (key.remote.address.wrapping_add(offset), key.remote.key);
        let progress = Arc::default();
        let transfers = Transfer::cut(is_put, (&region.memory, range.start), range.len(), remote, &progress);
        self.transfer(id, transfers.collect())?;
        Ok(Transferring { progress })
    }
}
