//! Memory that the peer reads and writes directly, without a thread of this process.
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! # softrnic::register().unwrap();
//! use trespass::{Acceptor, Connection, Grant, RegionKey};
//!
//! let acceptor = Acceptor::bind("127.0.0.1:0")?;
//! let client = Connection::connect(acceptor.local_addr())?;
//! let server = acceptor.accept()?;
//!
//! // The server lets its peer write a page, and sends it the key in a message.
//! let page = server.region(4096)?;
//! let grant = Grant::writable(&server, &page, 0..4096)?;
//! server.send(&grant.key().to_bytes())?;
//!
//! // The client puts bytes there, and notifies the server.
//! let key = client.recv()?.as_deref().and_then(RegionKey::from_bytes).expect("a key");
//! let mine = client.region(5)?;
//! mine.write_at(0, b"hello")?;
//! client.batch().put((&mine, 0..5), (&key, 100)).notify(42).submit()?.wait()?;
//!
//! let note = server.recv()?.expect("a notification");
//! assert_eq!(note[..], 42_u64.to_le_bytes());
//! let mut bytes = [0; 5];
//! page.read_at(100, &mut bytes)?;
//! assert_eq!(&bytes, b"hello");
//! grant.revoke()?; // the key works no more
//! # Ok(())
//! # }
//! ```

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::backend::RegionPart;
use crate::connection::Connection;
use crate::memory::{self, Progress, RegionMemory, Transfer};
use crate::proto::Remote;
use crate::worker::{ConnectionId, Wait, Worker};

/// Memory registered with the device of a connection's worker, for [`Batch`] and [`Grant`]. Clones refer to the same memory.
///
/// Batches and grants keep it registered.
#[derive(Clone, Debug)]
pub struct Region {
    memory: Arc<RegionMemory>,
}

/// Registers memory with the device of a worker's connections, without the worker: for programs that drive a [`Worker`] by themselves.
#[derive(Clone, Debug)]
pub struct Registrar {
    domain: memory::Domain,
}

impl Registrar {
    /// Allocates zeroed pages that the region owns.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the system cannot allocate or lock more memory.
    pub fn region(&self, length: usize) -> io::Result<Region> {
        let memory = RegionMemory::owned(&self.domain, length).map_err(registration)?;
        Ok(Region { memory: Arc::new(memory) })
    }

    /// Registers existing memory: the program's, or a GPU's by its address.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the device cannot reach the memory.
    ///
    /// # Safety
    ///
    /// See [`Connection::region_at`].
    pub unsafe fn region_at(&self, address: *mut u8, length: usize) -> io::Result<Region> {
        // SAFETY: the caller's promise.
        let memory = unsafe { RegionMemory::foreign(&self.domain, address.expose_provenance(), length) };
        Ok(Region { memory: Arc::new(memory.map_err(registration)?) })
    }

    /// Registers memory of a dma-buf, such as a GPU's: `length` bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the device or the kernel does not register dma-bufs.
    ///
    /// # Safety
    ///
    /// See [`Connection::region_of_dmabuf`].
    pub unsafe fn region_of_dmabuf(&self, fd: BorrowedFd<'_>, offset: u64, length: usize) -> io::Result<Region> {
        // SAFETY: the caller's promise.
        let memory = unsafe { RegionMemory::dmabuf(&self.domain, (fd, offset), length, offset) };
        Ok(Region { memory: Arc::new(memory.map_err(registration)?) })
    }
}

/// A key from [`Worker::open_region`]. It is valid until [`Worker::close_region`] or the end of the connection.
#[derive(Debug)]
pub struct OpenRegion {
    key: RegionKey,
}

impl OpenRegion {
    /// The key, for the peer.
    pub fn key(&self) -> RegionKey {
        self.key
    }
}

/// Transfers started by [`Worker::put`] or [`Worker::get`].
#[derive(Debug)]
pub struct Transferring {
    progress: Arc<Progress>,
}

impl Transferring {
    /// Whether the transfers have completed; `Some(false)` if one has failed.
    pub fn ended(&self) -> Option<bool> {
        self.progress.ended()
    }
}

impl Worker {
    /// Registers memory for a connection.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the connection does not run on RDMA.
    pub fn registrar(&self, id: ConnectionId) -> io::Result<Registrar> {
        Ok(Registrar { domain: self.region_domain(id)? })
    }

    /// Grants the peer of a connection read access, or read and write access, to bytes of a region: see [`Grant`].
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
        let (part, length) = region.part(range, is_writable, Arc::default())?;
        let remote = self.grant(id, part)?;
        Ok(OpenRegion { key: RegionKey { remote, length, is_writable } })
    }

    /// Revokes a key. The region's memory stays registered until the key is invalid.
    pub fn close_region(&mut self, id: ConnectionId, open: &OpenRegion) {
        self.conceal(id, open.key.remote);
    }

    /// Starts to write bytes of a region to `offset` within the bytes of the peer's key.
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

    /// Starts to read into a region, from `offset` within the bytes of the peer's key.
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

impl Connection {
    /// Allocates zeroed pages that the region owns.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the connection does not run on RDMA; `OutOfMemory` if the system cannot allocate or lock more memory.
    pub fn region(&self, length: usize) -> io::Result<Region> {
        let domain = self.handle().with(|worker| worker.region_domain(self.id()))?;
        let memory = RegionMemory::owned(&domain, length).map_err(registration)?;
        Ok(Region { memory: Arc::new(memory) })
    }

    /// Registers existing memory: the program's, or a GPU's by its address.
    ///
    /// # Errors
    ///
    /// See [`region`](Self::region); `EFAULT` if the device cannot reach the memory.
    ///
    /// # Safety
    ///
    /// Until the region, its batches and its grants have ended:
    ///
    /// - The `length` bytes at `address` stay allocated and mapped.
    /// - No Rust reference to them is held while a get of this side, or a peer with a writable grant, may write them.
    /// - No `&mut` to them is held while a put of this side, or a peer with a grant, may read them.
    pub unsafe fn region_at(&self, address: *mut u8, length: usize) -> io::Result<Region> {
        let domain = self.handle().with(|worker| worker.region_domain(self.id()))?;
        // SAFETY: the caller's promise.
        let memory = unsafe { RegionMemory::foreign(&domain, address.expose_provenance(), length) };
        Ok(Region { memory: Arc::new(memory.map_err(registration)?) })
    }

    /// Registers memory of a dma-buf, such as a GPU's: `length` bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// See [`region`](Self::region); `Unsupported` if the device or the kernel does not register dma-bufs.
    ///
    /// # Safety
    ///
    /// See [`region_at`](Self::region_at), for the memory of the dma-buf.
    pub unsafe fn region_of_dmabuf(&self, fd: BorrowedFd<'_>, offset: u64, length: usize) -> io::Result<Region> {
        let domain = self.handle().with(|worker| worker.region_domain(self.id()))?;
        // SAFETY: the caller's promise.
        let memory = unsafe { RegionMemory::dmabuf(&domain, (fd, offset), length, offset) };
        Ok(Region { memory: Arc::new(memory.map_err(registration)?) })
    }

    /// Begins a batch of transfers between regions of both sides.
    pub fn batch(&self) -> Batch<'_> {
        Batch { connection: self, transfers: Ok(Vec::new()), progress: Arc::default(), has_gets: false, notify: None }
    }
}

impl Region {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes out. If the peer writes at the same time, the copy may mix old and new bytes.
    ///
    /// # Errors
    ///
    /// The range is not within the region; `Unsupported` if the region does not own its memory.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> io::Result<()> {
        self.memory.read_at(offset, bytes)
    }

    /// Copies bytes in. If the peer reads at the same time, it may get a mix of old and new bytes.
    ///
    /// # Errors
    ///
    /// See [`read_at`](Self::read_at).
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_at(offset, bytes)
    }

    /// Whether no batch, key or clone uses the memory.
    pub fn is_unique(&self) -> bool {
        Arc::strong_count(&self.memory) == 1
    }

    /// Bytes for a peer, and how many.
    fn part(&self, range: Range<usize>, is_writable: bool, closed: Arc<Progress>) -> io::Result<(RegionPart, u64)> {
        self.check(&range)?;
        if range.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a key opens a byte at least"));
        }
        closed.begin();
        let (memory, offset, length) = (Arc::clone(&self.memory), range.start, range.len());
        Ok((RegionPart { memory, offset, length, is_writable, closed }, length as u64))
    }

    fn check(&self, range: &Range<usize>) -> io::Result<()> {
        if range.start <= range.end && range.end <= self.len() {
            return Ok(());
        }
        let text =
            format!("bytes {}..{} are not within the {} bytes of the region", range.start, range.end, self.len());
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }
}

/// A key to bytes of a region. The peer of the connection that it was granted on may read them, and write them if it is writable.
///
/// Send it to the peer as [bytes](Self::to_bytes), in a message or by any other means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionKey {
    remote: Remote,
    length: u64,
    is_writable: bool,
}

impl RegionKey {
    /// Bytes of a key.
    pub const LENGTH: usize = 24;

    /// Bytes that the key opens.
    #[expect(clippy::len_without_is_empty, reason = "a key opens a byte at least")]
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether the key allows writing.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// The key as bytes: address and length, 8 bytes each, key, 4 bytes, all little-endian; 1 if it is writable; three zeros.
    pub fn to_bytes(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&self.remote.address.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.remote.key.to_le_bytes());
        bytes[20] = u8::from(self.is_writable);
        bytes
    }

    /// Makes a key from an address, a length and a number that were received in another format.
    pub fn from_parts(address: u64, length: u64, key: u32, is_writable: bool) -> Self {
        Self { remote: Remote { address, key }, length, is_writable }
    }

    /// Address and number.
    pub fn parts(&self) -> (u64, u32) {
        (self.remote.address, self.remote.key)
    }

    /// Parses the bytes of [`to_bytes`](Self::to_bytes); `None` if they have another format.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (address, rest) = bytes.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let &[is_writable @ (0 | 1), 0, 0, 0] = rest else { return None };
        let remote = Remote { address: u64::from_le_bytes(*address), key: u32::from_le_bytes(*key) };
        Some(Self { remote, length: u64::from_le_bytes(*length), is_writable: is_writable == 1 })
    }
}

/// The peer's permission to access bytes of a region. Dropping it starts the revocation; [`revoke`](Self::revoke) waits until it is done.
///
/// If the device has memory windows of type 2B, the key is valid for these bytes and this connection only, and becomes invalid
/// when it is revoked. On other devices it is the key of the whole region: any peer of the worker that has the key may use it until the
/// region is released. [`doctor`](crate::doctor()) reports such devices.
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
    /// The range is empty or not within the region; the region belongs to another worker; the connection has ended, does not run on
    /// RDMA, or has the maximum of 64 keys.
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
        let remote = connection.handle().with(|worker| worker.grant(connection.id(), part))?;
        Ok(Self { connection, key: RegionKey { remote, length, is_writable }, closed })
    }

    /// The key, for the peer.
    pub fn key(&self) -> RegionKey {
        self.key
    }

    /// Revokes the key, and waits until it is invalid.
    ///
    /// # Errors
    ///
    /// Why the connection ended; the key is invalid in this case too.
    pub fn revoke(self) -> io::Result<()> {
        self.take_back();
        self.connection.wait(Wait::Write, None, |_| match self.closed.ended() {
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::WouldBlock.into()),
        })
    }

    fn take_back(&self) {
        self.connection.handle().with(|worker| worker.conceal(self.connection.id(), self.key.remote));
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        if self.closed.ended().is_none() {
            self.take_back();
        }
    }
}

/// Transfers that are submitted together.
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
    /// Adds a write of bytes of a local region to `offset` within the bytes of the peer's key.
    pub fn put(self, from: (&Region, Range<usize>), to: (&RegionKey, u64)) -> Self {
        self.add(true, from, to)
    }

    /// Adds a read into a local region, from `offset` within the bytes of the peer's key.
    pub fn get(mut self, to: (&Region, Range<usize>), from: (&RegionKey, u64)) -> Self {
        self.has_gets = true;
        self.add(false, to, from)
    }

    /// Sends the peer an 8-byte message with the number in little-endian order. It arrives after the data of the puts. If the batch has
    /// gets, [`Ticket::wait`] sends it after they have completed.
    pub fn notify(mut self, number: u64) -> Self {
        self.notify = Some(number);
        self
    }

    /// Hands the transfers to the device, in order.
    ///
    /// # Errors
    ///
    /// A range is not within its region or key, or the key does not allow writing; nothing is transferred then. The connection has ended.
    pub fn submit(self) -> io::Result<Ticket<'c>> {
        let Self { connection, transfers, progress, has_gets, mut notify } = self;
        let transfers = transfers?;
        connection.handle().with(|worker| worker.transfer(connection.id(), transfers))?;
        if let Some(number) = notify.take_if(|_| !has_gets) {
            connection.send(&number.to_le_bytes())?;
        }
        Ok(Ticket { connection, progress, notify })
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

/// A batch that was submitted.
#[derive(Debug)]
pub struct Ticket<'c> {
    connection: &'c Connection,
    progress: Arc<Progress>,
    notify: Option<u64>,
}

impl Ticket<'_> {
    /// Whether all transfers have completed.
    ///
    /// # Errors
    ///
    /// A transfer failed: the peer revoked its key, or the connection ended.
    pub fn is_done(&self) -> io::Result<bool> {
        match self.progress.ended() {
            None => Ok(false),
            Some(true) => Ok(true),
            Some(false) => {
                let text = "a transfer failed: the peer took its key back, or the connection ended";
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, text))
            }
        }
    }

    /// Waits until all transfers have completed: the puts are in the peer's memory, the gets in this side's.
    ///
    /// # Errors
    ///
    /// See [`is_done`](Self::is_done).
    pub fn wait(self) -> io::Result<()> {
        self.connection.wait(Wait::Write, None, |_| match self.is_done()? {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        })?;
        match self.notify {
            Some(number) => self.connection.send(&number.to_le_bytes()),
            None => Ok(()),
        }
    }
}

fn check_key(key: &RegionKey, offset: u64, length: usize, is_put: bool) -> io::Result<()> {
    let text = if is_put && !key.is_writable {
        "the key does not open its memory for writing".to_owned()
    } else if offset.checked_add(length as u64).is_none_or(|end| end > key.length) {
        format!("{length} bytes at offset {offset} are not within the {} bytes that the key opens", key.length)
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

fn registration(error: sideway::error::VerbError) -> io::Error {
    io::Error::new(error.kind(), error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Acceptor, Handle, Options, Transport};

    fn pair(transport: Transport) -> (Connection, Connection) {
        softrnic::register().unwrap();
        let [server, client] = [(); 2].map(|()| Handle::new(&Options { transport, ..Options::default() }).unwrap());
        // On a device of the kernel, one of its addresses: 127.0.0.1 leads to none.
        let host = std::env::var("TRESPASS_TEST_ADDRESS").unwrap_or_else(|_| "127.0.0.1".to_owned());
        let acceptor = Acceptor::bind_on(&server, (host.as_str(), 0)).unwrap();
        let client = Connection::connect_on(&client, acceptor.local_addr(), None).unwrap();
        (acceptor.accept().unwrap(), client)
    }

    #[test]
    fn a_batch_larger_than_the_send_queue_arrives_whole() {
        let (server, client) = pair(Transport::Rdma);
        let (theirs, mine) = (server.region(64_000).unwrap(), client.region(64_000).unwrap());
        let bytes: Vec<u8> = (0..64_000_u32).map(|n| (n / 64) as u8).collect();
        mine.write_at(0, &bytes).unwrap();
        let grant = Grant::writable(&server, &theirs, 0..64_000).unwrap();
        server.send(&grant.key().to_bytes()).unwrap();
        let key = RegionKey::from_bytes(&client.recv().unwrap().unwrap()).unwrap();
        let mut batch = client.batch();
        for n in 0..1000 {
            batch = batch.put((&mine, n * 64..(n + 1) * 64), (&key, n as u64 * 64));
        }
        let ticket = batch.notify(7).submit().unwrap();
        assert_eq!(server.recv().unwrap().unwrap()[..], 7_u64.to_le_bytes());
        let mut arrived = vec![0; 64_000];
        theirs.read_at(0, &mut arrived).unwrap();
        assert_eq!(arrived, bytes);
        ticket.wait().unwrap();
        assert!(client.send(b"the connection goes on").is_ok());
    }

    #[test]
    fn gets_complete_before_their_notification_is_sent() {
        let (server, client) = pair(Transport::Rdma);
        let (theirs, mine) = (server.region(4096).unwrap(), client.region(4096).unwrap());
        theirs.write_at(1000, b"there").unwrap();
        let grant = Grant::readable(&server, &theirs, 1000..1005).unwrap();
        server.send(&grant.key().to_bytes()).unwrap();
        let key = RegionKey::from_bytes(&client.recv().unwrap().unwrap()).unwrap();
        assert_eq!((key.len(), key.is_writable()), (5, false));
        client.batch().get((&mine, 8..13), (&key, 0)).notify(1).submit().unwrap().wait().unwrap();
        let mut bytes = [0; 5];
        mine.read_at(8, &mut bytes).unwrap();
        assert_eq!(&bytes, b"there");
        assert_eq!(server.recv().unwrap().unwrap()[..], 1_u64.to_le_bytes());
    }

    #[test]
    fn a_key_that_was_taken_back_works_no_more() {
        let (server, client) = pair(Transport::Rdma);
        let (theirs, mine) = (server.region(64).unwrap(), client.region(64).unwrap());
        let grant = Grant::writable(&server, &theirs, 0..64).unwrap();
        let key = grant.key();
        server.send(b"granted").unwrap();
        client.recv().unwrap().unwrap();
        client.batch().put((&mine, 0..64), (&key, 0)).submit().unwrap().wait().unwrap();
        grant.revoke().unwrap();
        mine.write_at(0, &[1; 64]).unwrap();
        let late = client.batch().put((&mine, 0..64), (&key, 0)).submit().unwrap();
        assert!(late.wait().is_err());
        let mut bytes = [9; 64];
        theirs.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 64]);
    }

    #[test]
    fn what_does_not_fit_is_refused_before_it_is_posted() {
        let (server, client) = pair(Transport::Rdma);
        let (theirs, mine) = (server.region(64).unwrap(), client.region(64).unwrap());
        let read_only = Grant::readable(&server, &theirs, 0..32).unwrap().key();
        let kinds = [
            client.batch().put((&mine, 0..8), (&read_only, 0)).submit().map(drop),
            client.batch().get((&mine, 0..8), (&read_only, 25)).submit().map(drop),
            client.batch().get((&mine, 60..65), (&read_only, 0)).submit().map(drop),
            client.batch().get((&mine, 0..8), (&read_only, u64::MAX)).submit().map(drop),
            Grant::readable(&server, &theirs, 8..8).map(drop),
            Grant::readable(&server, &mine, 0..8).map(drop),
        ]
        .map(|result| result.unwrap_err().kind());
        assert_eq!(kinds, [io::ErrorKind::InvalidInput; 6]);
        assert!(client.send(b"the connection goes on").is_ok());
    }

    #[test]
    fn the_65th_key_is_refused_and_one_taken_back_makes_room() {
        let (server, _client) = pair(Transport::Rdma);
        let region = server.region(64).unwrap();
        let mut grants: Vec<Grant<'_>> = (0..64).map(|_| Grant::readable(&server, &region, 0..1).unwrap()).collect();
        assert_eq!(Grant::readable(&server, &region, 0..1).unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
        grants.pop().unwrap().revoke().unwrap();
        assert!(Grant::readable(&server, &region, 0..1).is_ok());
    }

    #[test]
    fn a_ticket_fails_when_the_peer_goes() {
        let (server, client) = pair(Transport::Rdma);
        let (theirs, mine) = (server.region(64).unwrap(), client.region(64).unwrap());
        let key = Grant::writable(&server, &theirs, 0..64).unwrap().key();
        drop(server);
        let done = client.batch().put((&mine, 0..64), (&key, 0)).submit().and_then(Ticket::wait);
        assert!(done.is_err());
    }

    #[test]
    fn a_connection_over_tcp_has_no_regions() {
        let (server, _client) = pair(Transport::Tcp);
        assert_eq!(server.region(64).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }

    #[test]
    fn keys_travel_as_bytes() {
        let key = RegionKey { remote: Remote { address: 0x0102_0304, key: 7 }, length: 99, is_writable: true };
        assert_eq!(RegionKey::from_bytes(&key.to_bytes()), Some(key));
        assert_eq!(RegionKey::from_bytes(&key.to_bytes()[1..]), None);
        let mut bytes = key.to_bytes();
        bytes[20] = 2;
        assert_eq!(RegionKey::from_bytes(&bytes), None);
    }
}
