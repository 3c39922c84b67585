//! Receives messages in regions.

use std::io;
use std::ops::Range;

use crate::connection::{Connection, unless_end};
use crate::memory::Buf;
use crate::proto;
use crate::worker::{Awaited, ConnectionId, Worker};

use super::Region;

/// Where a message is that [`Connection::recv_into_region`] has received.
#[derive(Debug)]
pub enum Placed {
    /// In the region: this number of bytes, from the start of the range on.
    Region(usize),
    /// In a buffer, because it had arrived before it was received: it is short, or an ordinary receive came before.
    Buffer(Buf),
}

impl From<Buf> for Placed {
    fn from(message: Buf) -> Self {
        Self::Buffer(message)
    }
}

impl Placed {
    /// Returns the number, if this is a notification: see [`Buf::notification`].
    pub fn notification(&self) -> Option<u64> {
        match self {
            Self::Region(_) => None,
            Self::Buffer(message) => message.notification(),
        }
    }
}

impl Connection {
    /// Waits for the next message, and receives it in the given range of a region: memory that this side has registered,
    /// also memory of a GPU. Returns `None` after the last message.
    ///
    /// A message that waits in the peer's memory is READ into the region, without a copy: over RDMA, these are messages of
    /// more than 16 KiB ([`Options::eager`](crate::Options::eager)) that the peer sends from its pool. Each other message
    /// is returned in a buffer, and the region is unchanged.
    ///
    /// Until the next call of another receiving method, long messages stay in the peer's memory until they are received
    /// one by one. If this call is cancelled or fails, the message stays queued, but the device may still write to the
    /// region: [`Region::release`] returns an error until it has finished.
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
        let attempt = |worker: &mut Worker| worker.try_recv_into_region(self.id(), region, range.clone());
        unless_end(self.wait(Awaited::Message, None, attempt))
    }
}

impl Worker {
    /// Receives the next message in a region, or in a buffer: see [`Connection::recv_into_region`].
    ///
    /// # Errors
    ///
    /// `WouldBlock` if no message has arrived, or if it is not in the region yet: call this again with the same range when
    /// the connection is readable. `UnexpectedEof` after the last message. Otherwise see
    /// [`Connection::recv_into_region`].
    pub fn try_recv_into_region(
        &mut self,
        id: ConnectionId,
        region: &Region,
        range: Range<usize>,
    ) -> io::Result<Placed> {
        region.check(&range)?;
        match self.try_place(id, &region.memory, range)? {
            proto::Placed::Region(length) => Ok(Placed::Region(length)),
            proto::Placed::Buffer(message) => Ok(Placed::Buffer(message)),
            proto::Placed::Empty => Err(io::ErrorKind::WouldBlock.into()),
            proto::Placed::End => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
