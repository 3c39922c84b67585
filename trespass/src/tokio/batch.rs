//! Transfers between this side's regions and the peer's.

use std::io;
use std::ops::Range;

use super::waiting::Waiting;
use crate::worker::{Awaited, Source};
use crate::{Grant, Region, RegionKey};

/// A list of transfers that are submitted together: see [`Batch`](crate::Batch).
#[derive(Debug)]
#[must_use = "a batch that is not submitted transfers nothing"]
pub struct Batch<'c> {
    pub(super) connection: &'c crate::Connection,
    pub(super) inner: crate::Batch<'c>,
}

impl Batch<'_> {
    /// Adds a transfer to the peer's memory: see [`Batch::put`](crate::Batch::put).
    pub fn put(self, from: (&Region, Range<usize>), to: (&RegionKey, u64)) -> Self {
        Self { inner: self.inner.put(from, to), ..self }
    }

    /// Adds a transfer from the peer's memory: see [`Batch::get`](crate::Batch::get).
    pub fn get(self, to: (&Region, Range<usize>), from: (&RegionKey, u64)) -> Self {
        Self { inner: self.inner.get(to, from), ..self }
    }

    /// Adds a notification of the peer, which [`Connection::notified`](super::Connection::notified) returns there. It
    /// arrives after the data of the puts, and after the gets have completed.
    pub fn notify(self, number: u64) -> Self {
        Self { inner: self.inner.notify(number), ..self }
    }

    /// Passes the transfers to the device, in order, and waits until they have completed. The bytes of the puts are then
    /// in the peer's memory, and those of the gets are in this side's memory. If the future is dropped before, the
    /// transfers that it has started continue, but the notification may not be sent.
    ///
    /// # Errors
    ///
    /// See [`Batch::submit`](crate::Batch::submit) and [`Ticket::wait`](crate::Ticket::wait).
    pub async fn submit(self) -> io::Result<()> {
        let connection = self.connection;
        let wait_to_notify = async |number| {
            let source = Source::Connection(connection.id(), Awaited::Room);
            Waiting::new(connection.handle(), source, |worker| worker.try_notify(connection.id(), number)).await
        };
        let (ticket, now) = self.inner.start()?;
        if let Some(number) = now {
            wait_to_notify(number).await?;
        }
        let source = Source::Connection(connection.id(), Awaited::Transfer);
        Waiting::new(connection.handle(), source, |_| ticket.has_ended()).await?;
        match ticket.notify {
            Some(number) => wait_to_notify(number).await,
            None => Ok(()),
        }
    }
}

/// Revokes a key, and waits until it is invalid. If the future is dropped before, the key becomes invalid in the
/// background.
///
/// # Errors
///
/// See [`Grant::revoke`].
pub async fn revoke(grant: Grant<'_>) -> io::Result<()> {
    grant.take_back();
    let connection = grant.connection();
    let source = Source::Connection(connection.id(), Awaited::Transfer);
    Waiting::new(connection.handle(), source, |_| grant.has_ended()).await
}
