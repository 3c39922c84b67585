//! Receives messages in regions.

use std::io;
use std::ops::Range;
use std::time::Instant;

use crate::connection::{Connection, unless_end};
use crate::proto::{Place, Placed};
use crate::worker::{Awaited, Worker};

use super::Region;

impl Connection {
    /// Waits for the next message, and receives it in the given range of a region: memory that this side has registered,
    /// also memory of a GPU. Returns `None` after the last message.
    ///
    /// A message that waits in the peer's memory is READ into the region, without a copy. These are messages of more than
    /// 16 KiB and at most 64 MiB, and at most 1/16 of this side's [`Options::memory`](crate::Options::memory), or 1 MiB if
    /// that is larger. They must come from the sender's pool, where `send` and [`alloc`](Self::alloc) put them. Each other
    /// message is returned in a buffer, and the region is unchanged. A connection over TCP has no regions
    /// ([`Connection::region`] returns `Unsupported`): use [`recv`](Self::recv).
    ///
    /// From this call on, long messages wait in the peer's memory, and each is READ when it is received. Receiving short
    /// messages by other methods, such as the header of a payload, does not change this. An ordinary receive that waits for
    /// a long message ends it. A peer that closes the connection waits for its long messages only for its linger time.
    ///
    /// If this call fails, the message stays queued for the next receive, and what the region contains is undefined. The
    /// device may then still write to the region: [`Region::release`] returns an error until it has finished. The next call
    /// READs the message from its start, so calls that end before the message has arrived make no progress.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// # softrnic::register().unwrap();
    /// use trespass::{Acceptor, Connection, Placed};
    ///
    /// let acceptor = Acceptor::bind("127.0.0.1:0")?;
    /// let client = Connection::connect(acceptor.local_addr())?;
    /// let server = acceptor.accept()?;
    /// client.send(&[7; 100_000])?;
    ///
    /// let region = server.region(1 << 20)?;
    /// match server.recv_into_region(&region, 4096..1 << 20)?.expect("a message") {
    ///     Placed::Region(length) => assert_eq!(length, 100_000),
    ///     Placed::Buffer(message) => region.write_at(4096, &message)?,
    /// }
    /// let mut bytes = [0; 100_000];
    /// region.read_at(4096, &mut bytes)?;
    /// assert!(bytes == [7; 100_000]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the message in the peer's memory is longer than the range: the message stays queued, and the error
    /// text contains its length. Also if the range is not within the region, or the region belongs to another device.
    /// Otherwise see [`Connection::recv`].
    pub fn recv_into_region(&self, region: &Region, range: Range<usize>) -> io::Result<Option<Placed>> {
        self.recv_into_region_until(region, range, None)
    }

    /// Does the same as [`recv_into_region`](Self::recv_into_region) until the deadline.
    ///
    /// # Errors
    ///
    /// `TimedOut`; otherwise see [`recv_into_region`](Self::recv_into_region).
    pub fn recv_into_region_until(
        &self,
        region: &Region,
        range: Range<usize>,
        deadline: Option<Instant>,
    ) -> io::Result<Option<Placed>> {
        let call = Call::new(self, region, range)?;
        let received = self.wait(Awaited::Message, deadline, |worker| call.attempt(worker));
        call.end(received)
    }
}

/// A call that receives in a region. If it ends without a message, other calls get the message that was READ for it.
#[derive(Debug)]
pub(crate) struct Call<'c> {
    connection: &'c Connection,
    place: Option<Place>,
}

impl<'c> Call<'c> {
    pub(crate) fn new(connection: &'c Connection, region: &Region, range: Range<usize>) -> io::Result<Self> {
        Ok(Self { connection, place: Some(region.place(range)?) })
    }

    /// Returns the next message, or `WouldBlock`.
    pub(crate) fn attempt(&self, worker: &mut Worker) -> io::Result<Placed> {
        match &self.place {
            Some(place) => worker.try_recv_into_region(self.connection.id(), place),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    pub(crate) fn end(mut self, received: io::Result<Placed>) -> io::Result<Option<Placed>> {
        if received.is_ok() {
            self.place = None;
        }
        unless_end(received)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        // The message waits again when the place is dropped.
        if self.place.take().is_some() {
            let id = self.connection.id();
            // In a forked child, nothing waits.
            _ = self.connection.handle().with(|worker| worker.wake_calls(id, Awaited::Message));
        }
    }
}

impl Region {
    /// Returns the place of a call that receives in this region.
    pub(crate) fn place(&self, range: Range<usize>) -> io::Result<Place> {
        self.check(&range)?;
        Ok(Place::new(&self.memory, range))
    }
}
