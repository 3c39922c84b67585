//! Grants a peer permission to access regions.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::connection::Connection;
use crate::memory::{Ending, Progress};
use crate::worker::{Awaited, ConnectionId, Worker};

use super::{Region, RegionKey};

/// The peer's permission to access bytes of a region. Dropping this value starts to revoke the key;
/// [`revoke`](Self::revoke) also waits until the key is invalid.
///
/// The key is valid when a message that this side sends after the grant arrives at the peer. A peer that gets the key by
/// other means can use it as soon as the device has executed the earlier requests of the connection, which
/// [`Connection::flush`] waits for.
///
/// If the peer uses a key after it was revoked, its device gets a refusal, and RDMA devices then end the connection. Let
/// the peer confirm that it no longer uses the key, and revoke it then.
///
/// If the device has memory windows of type 2B, the key is valid for these bytes and this connection only, and becomes
/// invalid when it is revoked. On other devices, the key gives access to the whole region: any peer of the worker that
/// has the key may use it until the region is released. [`doctor`](crate::doctor()) reports such devices.
#[derive(Debug)]
pub struct Grant<'c> {
    connection: &'c Connection,
    key: RegionKey,
    closed: Arc<Progress>,
}

impl<'c> Grant<'c> {
    /// Lets the peer read bytes of a region.
    ///
    /// # Errors
    ///
    /// The range is empty or not within the region; the region belongs to another worker; or the connection has ended,
    /// does not use RDMA, or already has the maximum of 64 keys.
    pub fn readable(connection: &'c Connection, region: &Region, range: Range<usize>) -> io::Result<Self> {
        Self::new(connection, region, range, false)
    }

    /// Lets the peer read and write bytes of a region.
    ///
    /// # Errors
    ///
    /// See [`readable`](Self::readable).
    pub fn writable(connection: &'c Connection, region: &Region, range: Range<usize>) -> io::Result<Self> {
        Self::new(connection, region, range, true)
    }

    fn new(connection: &'c Connection, region: &Region, range: Range<usize>, is_writable: bool) -> io::Result<Self> {
        let closed = Arc::<Progress>::default();
        let (part, length) = region.part(range, is_writable, Arc::clone(&closed))?;
        let remote = connection.handle().with(|worker| worker.grant(connection.id(), part))??;
        Ok(Self { connection, key: RegionKey { remote, length, is_writable }, closed })
    }

    /// Returns the key, which the program sends to the peer.
    pub fn key(&self) -> RegionKey {
        self.key
    }

    /// Revokes the key, and waits until it is invalid.
    ///
    /// # Errors
    ///
    /// `ConnectionAborted` if the device failed to end the connection. The key may then stay valid until the process
    /// ends.
    pub fn revoke(self) -> io::Result<()> {
        self.take_back();
        self.connection.wait(Awaited::Transfer, None, |_| self.has_ended())
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn connection(&self) -> &'c Connection {
        self.connection
    }

    /// Returns `WouldBlock` until the key is invalid.
    pub(crate) fn has_ended(&self) -> io::Result<()> {
        match self.closed.ended() {
            Some(Ending::Done) => Ok(()),
            Some(Ending::Lost | Ending::Refused) => {
                let text = "the device did not end the connection: the key may be valid until the process ends";
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, text))
            }
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    pub(crate) fn take_back(&self) {
        // In a child of the worker's process, the key belongs to the parent.
        _ = self.connection.handle().with(|worker| worker.revoke(self.connection.id(), &self.closed));
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        if self.closed.ended().is_none() {
            self.take_back();
        }
    }
}

/// The peer's permission that [`Worker::open_region`] has granted. Its key is valid until [`Worker::close_region`] has
/// revoked it or the connection has ended. Dropping this value changes nothing.
#[derive(Debug)]
pub struct OpenRegion {
    key: RegionKey,
    closed: Arc<Progress>,
}

impl OpenRegion {
    /// Returns the key, which the program sends to the peer.
    pub fn key(&self) -> RegionKey {
        self.key
    }
}

impl Worker {
    /// Grants the peer of a connection read access, or read and write access, to bytes of a region: see [`Grant`]. The
    /// next turn or [`flush`](Self::flush) of the worker makes the key valid.
    ///
    /// # Errors
    ///
    /// See [`Grant::readable`].
    pub fn open_region(
        &mut self,
        id: ConnectionId,
        region: &Region,
        range: Range<usize>,
        is_writable: bool,
    ) -> io::Result<OpenRegion> {
        let closed = Arc::<Progress>::default();
        let (part, length) = region.part(range, is_writable, Arc::clone(&closed))?;
        let remote = self.grant(id, part)?;
        Ok(OpenRegion { key: RegionKey { remote, length, is_writable }, closed })
    }

    /// Starts to revoke a key. It is invalid, and the region's memory no longer in use, after some more turns of the
    /// worker: see [`Region::release`].
    pub fn close_region(&mut self, id: ConnectionId, open: &OpenRegion) {
        self.revoke(id, &open.closed);
    }
}
