//! Memory that the peer's NIC reads and writes directly, without a thread of this process.

mod batch;
mod grant;
mod key;
mod receive;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use sideway::error::VerbError;

use crate::backend::RegionPart;
use crate::connection::Connection;
use crate::memory::{self, Progress, RegionMemory};
use crate::worker::{ConnectionId, Worker};

pub use batch::{Batch, Ticket, Transferring};
pub use grant::{Grant, OpenRegion};
pub use key::RegionKey;
#[cfg(feature = "tokio")]
pub(crate) use receive::Call;

/// Memory that is registered with the device of a connection's worker, and that [`Batch`] and [`Grant`] use. Clones
/// refer to the same memory.
///
/// Batches, keys and receives keep the memory registered; [`release`](Self::release) ends the registration.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # softrnic::register().unwrap();
/// use trespass::{Acceptor, Connection, Grant, RegionKey};
///
/// let acceptor = Acceptor::bind("127.0.0.1:0")?;
/// let client = Connection::connect(acceptor.local_addr())?;
/// let server = acceptor.accept()?;
///
/// // The server lets its peer write a page, and sends it the key in a message.
/// let page = server.region(4096)?;
/// let grant = Grant::writable(&server, &page, 0..4096)?;
/// server.send(&grant.key().to_bytes())?;
///
/// // The client puts bytes there, and notifies the server.
/// let key = client.recv()?.as_deref().and_then(RegionKey::from_bytes).expect("a key");
/// let mine = client.region(5)?;
/// mine.write_at(0, b"hello")?;
/// client.batch().put((&mine, 0..5), (&key, 100)).notify(42).submit()?.wait()?;
///
/// let note = server.recv()?.expect("a notification");
/// assert_eq!(note.notification(), Some(42));
/// let mut bytes = [0; 5];
/// page.read_at(100, &mut bytes)?;
/// assert_eq!(&bytes, b"hello");
/// grant.revoke()?; // from now on the key is invalid
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Region {
    memory: Arc<RegionMemory>,
}

/// Registers memory with the device of a worker's connections. A registrar does not use the worker itself, so programs
/// that drive a [`Worker`] themselves can use it.
#[derive(Clone, Debug)]
pub struct Registrar {
    domain: memory::Domain,
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

    /// Copies bytes from the region. If the peer writes at the same time, the copy may mix old and new bytes.
    ///
    /// # Errors
    ///
    /// The range is not within the region; `Unsupported` if the region does not own its memory.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> io::Result<()> {
        self.memory.read_at(offset, bytes)
    }

    /// Copies bytes into the region. A peer that reads at the same time may get a mix of old and new bytes.
    ///
    /// # Errors
    ///
    /// See [`read_at`](Self::read_at).
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_at(offset, bytes)
    }

    /// Whether no batch, key, receive or clone uses the memory.
    pub fn is_unique(&self) -> bool {
        Arc::strong_count(&self.memory) == 1
    }

    /// Ends the registration. After this, neither the device nor a peer accesses the memory, and the program may free
    /// memory that it has registered by its address.
    ///
    /// Dropping the region does not suffice for that: a transfer that was submitted, and a key, keep the memory in use
    /// until they have ended, even if their [`Ticket`] or [`Grant`] was dropped. Wait for the transfers, revoke the keys
    /// ([`Grant::revoke`], or [`Worker::close_region`] and turns of the worker), and release the region then.
    ///
    /// # Errors
    ///
    /// A transfer, a receive, a key or a clone uses the memory; [`ReleaseError::into_region`] returns the region. Or the
    /// device does not end the registration; the memory must then stay until the process ends.
    pub fn release(self) -> Result<(), ReleaseError> {
        let used = |memory| ReleaseError(Unreleased::Used(Self { memory }));
        let memory = Arc::try_unwrap(self.memory).map_err(used)?;
        memory.release().map_err(|kept| match kept {
            Ok(memory) => used(Arc::new(memory)),
            Err(error) => ReleaseError(Unreleased::Failed(error)),
        })
    }

    /// Returns the part of the region that a peer may access, and its length.
    fn part(&self, range: Range<usize>, is_writable: bool, closed: Arc<Progress>) -> io::Result<(RegionPart, u64)> {
        self.check(&range)?;
        if range.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the range is empty; a key needs at least one byte",
            ));
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

/// Why [`Region::release`] did not end the registration.
#[derive(Debug)]
pub struct ReleaseError(Unreleased);

#[derive(Debug)]
enum Unreleased {
    Used(Region),
    Failed(VerbError),
}

impl ReleaseError {
    /// Returns the region, if a transfer, a key or a clone uses its memory. It can be released later.
    pub fn into_region(self) -> Option<Region> {
        match self.0 {
            Unreleased::Used(region) => Some(region),
            Unreleased::Failed(_) => None,
        }
    }
}

impl fmt::Display for ReleaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Unreleased::Used(_) => {
                f.write_str("the region is in use: wait for its transfers, revoke its keys, and drop its clones")
            }
            Unreleased::Failed(error) => write!(f, "the device does not release the region: {error}"),
        }
    }
}

impl Error for ReleaseError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            Unreleased::Used(_) => None,
            Unreleased::Failed(error) => Some(error),
        }
    }
}

/// Two registrars are equal if they register memory with the same device of the same worker.
impl PartialEq for Registrar {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.domain.pd, &other.domain.pd)
    }
}

impl Eq for Registrar {}

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

    /// Registers existing memory of the program, or memory of a GPU, by its address.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the device cannot access the memory.
    ///
    /// # Safety
    ///
    /// See [`Connection::region_at`].
    pub unsafe fn region_at(&self, address: *mut u8, length: usize) -> io::Result<Region> {
        // SAFETY: guaranteed by the caller.
        let memory = unsafe { RegionMemory::foreign(&self.domain, address.expose_provenance(), length) };
        Ok(Region { memory: Arc::new(memory.map_err(registration)?) })
    }

    /// Registers memory of a dma-buf, such as memory of a GPU: `length` bytes, beginning at `offset`.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the device or the kernel does not register dma-bufs.
    ///
    /// # Safety
    ///
    /// See [`Connection::region_of_dmabuf`].
    pub unsafe fn region_of_dmabuf(&self, fd: BorrowedFd<'_>, offset: u64, length: usize) -> io::Result<Region> {
        // SAFETY: guaranteed by the caller.
        let memory = unsafe { RegionMemory::dmabuf(&self.domain, (fd, offset), length, offset) };
        Ok(Region { memory: Arc::new(memory.map_err(registration)?) })
    }
}

impl Worker {
    /// Registers memory for a connection.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the connection uses TCP.
    pub fn registrar(&self, id: ConnectionId) -> io::Result<Registrar> {
        Ok(Registrar { domain: self.region_domain(id)? })
    }
}

impl Connection {
    /// Allocates zeroed pages that the region owns.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the connection uses TCP; `OutOfMemory` if the system cannot allocate or lock more memory.
    pub fn region(&self, length: usize) -> io::Result<Region> {
        let domain = self.handle().with(|worker| worker.region_domain(self.id()))??;
        let memory = RegionMemory::owned(&domain, length).map_err(registration)?;
        Ok(Region { memory: Arc::new(memory) })
    }

    /// Registers existing memory of the program, or memory of a GPU, by its address.
    ///
    /// # Errors
    ///
    /// See [`region`](Self::region); `EFAULT` if the device cannot access the memory.
    ///
    /// # Safety
    ///
    /// Until [`Region::release`] has succeeded, or, without a handle to the region, until the process ends:
    ///
    /// - The `length` bytes at `address` stay allocated and mapped.
    /// - No Rust reference to the bytes exists while a get of this side, a receive in the region (also one that was
    ///   cancelled or has failed), or a peer with a writable grant may write them.
    /// - No `&mut` reference to the bytes exists while a put of this side or a peer with a grant may read them.
    pub unsafe fn region_at(&self, address: *mut u8, length: usize) -> io::Result<Region> {
        let domain = self.handle().with(|worker| worker.region_domain(self.id()))??;
        // SAFETY: guaranteed by the caller.
        let memory = unsafe { RegionMemory::foreign(&domain, address.expose_provenance(), length) };
        Ok(Region { memory: Arc::new(memory.map_err(registration)?) })
    }

    /// Registers memory of a dma-buf, such as memory of a GPU: `length` bytes, beginning at `offset`.
    ///
    /// # Errors
    ///
    /// See [`region`](Self::region); `Unsupported` if the device or the kernel does not register dma-bufs.
    ///
    /// # Safety
    ///
    /// The conditions of [`region_at`](Self::region_at), for the memory of the dma-buf.
    pub unsafe fn region_of_dmabuf(&self, fd: BorrowedFd<'_>, offset: u64, length: usize) -> io::Result<Region> {
        let domain = self.handle().with(|worker| worker.region_domain(self.id()))??;
        // SAFETY: guaranteed by the caller.
        let memory = unsafe { RegionMemory::dmabuf(&domain, (fd, offset), length, offset) };
        Ok(Region { memory: Arc::new(memory.map_err(registration)?) })
    }
}

fn registration(error: VerbError) -> io::Error {
    io::Error::new(error.kind(), error)
}
