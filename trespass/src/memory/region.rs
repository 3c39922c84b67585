//! Memory regions that peers read and write directly.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sideway::error::VerbError;
use sideway::ibverbs::memory_region::{LocalKey, MemoryRegion, OwnedMemoryRegion};

use super::Domain;

/// Maximum number of bytes of one request, which every device supports.
const LONGEST: usize = 1 << 30;

/// Memory that is registered for peers. Requests and keys keep it registered.
#[derive(Debug)]
pub(crate) struct RegionMemory {
    memory: Memory,
    address: u64,
    length: usize,
}

#[derive(Debug)]
enum Memory {
    /// The lock serializes copies by the program. The device does not take it.
    Owned(Mutex<OwnedMemoryRegion>, Arc<MemoryRegion>),
    Foreign(Arc<MemoryRegion>),
    /// Memory of the simulator, without a device.
    #[cfg(test)]
    Simulated(Mutex<Vec<u8>>),
}

impl RegionMemory {
    /// Pages that the region owns.
    pub(crate) fn owned(domain: &Domain, length: usize) -> Result<Self, VerbError> {
        let owned = domain.pd.reg_owned_mr(length, domain.region_access())?;
        let (address, region) = (owned.addr(), Arc::clone(owned.region()));
        Ok(Self { memory: Memory::Owned(Mutex::new(owned), region), address, length })
    }

    #[cfg(test)]
    pub(crate) fn simulated(length: usize) -> Self {
        Self { memory: Memory::Simulated(Mutex::new(vec![0; length])), address: 0, length }
    }

    /// Registers memory of the program, or of a GPU, by its address.
    ///
    /// # Safety
    ///
    /// The conditions of [`ProtectionDomain::reg_mr`](sideway::ibverbs::protection_domain::ProtectionDomain::reg_mr)
    /// for memory that peers read and write.
    pub(crate) unsafe fn foreign(domain: &Domain, address: usize, length: usize) -> Result<Self, VerbError> {
        // SAFETY: guaranteed by the caller.
        let region = unsafe { domain.pd.reg_mr(address, length, domain.region_access())? };
        Ok(Self { memory: Memory::Foreign(region), address: address as u64, length })
    }

    /// Registers memory of a dma-buf. In keys and requests, its first byte has the address `iova`.
    ///
    /// # Safety
    ///
    /// As for `foreign`.
    pub(crate) unsafe fn dmabuf(
        domain: &Domain,
        (fd, offset): (BorrowedFd<'_>, u64),
        length: usize,
        iova: u64,
    ) -> Result<Self, VerbError> {
        // SAFETY: guaranteed by the caller.
        let region = unsafe { domain.pd.reg_dmabuf_mr(offset, length, iova, fd, domain.region_access())? };
        Ok(Self { memory: Memory::Foreign(region), address: iova, length })
    }

    /// Ends the registration, if nothing else refers to it.
    ///
    /// # Errors
    ///
    /// The memory itself, if something else refers to it; otherwise the device's error.
    pub(crate) fn release(self) -> Result<(), Result<Self, VerbError>> {
        let Self { memory, address, length } = self;
        match memory {
            Memory::Owned(owned, region) => {
                drop(region);
                owned.into_inner().unwrap_or_else(PoisonError::into_inner).close().map_err(Err)
            }
            Memory::Foreign(region) => match Arc::try_unwrap(region) {
                Ok(region) => region.close().map_err(Err),
                Err(region) => Err(Ok(Self { memory: Memory::Foreign(region), address, length })),
            },
            #[cfg(test)]
            Memory::Simulated(_) => Ok(()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn region(&self) -> &Arc<MemoryRegion> {
        match &self.memory {
            Memory::Owned(_, region) | Memory::Foreign(region) => region,
            #[cfg(test)]
            Memory::Simulated(_) => unreachable!("simulated memory has no device"),
        }
    }

    /// Copies bytes from the region. If a peer writes at the same time, the copy may mix old and new bytes.
    pub(crate) fn read_at(&self, offset: usize, bytes: &mut [u8]) -> io::Result<()> {
        #[cfg(test)]
        if let Memory::Simulated(memory) = &self.memory {
            bytes.copy_from_slice(&memory.lock().unwrap()[offset..][..bytes.len()]);
            return Ok(());
        }
        let Memory::Owned(owned, _) = &self.memory else { return Err(not_owned()) };
        owned.lock().unwrap_or_else(PoisonError::into_inner).read_at(offset, bytes).map_err(io::Error::other)
    }

    /// Copies bytes into the region. A peer that reads at the same time may get a mix of old and new bytes.
    pub(crate) fn write_at(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        if let Memory::Simulated(memory) = &self.memory {
            memory.lock().unwrap()[offset..][..bytes.len()].copy_from_slice(bytes);
            return Ok(());
        }
        let Memory::Owned(owned, _) = &self.memory else { return Err(not_owned()) };
        owned.lock().unwrap_or_else(PoisonError::into_inner).write_at(offset, bytes).map_err(io::Error::other)
    }
}

#[cold]
fn not_owned() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "the region does not own its memory; access the memory that was registered instead",
    )
}

/// One transfer of a batch, between a region and a peer's memory.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) is_put: bool,
    region: Arc<RegionMemory>,
    offset: usize,
    length: u32,
    /// The peer's address and key.
    pub(crate) remote: (u64, u32),
    progress: Arc<Progress>,
    ending: Ending,
    /// Counts the transfers of the connection.
    under_way: Option<Arc<()>>,
}

impl Transfer {
    /// Returns the requests that together transfer `length` bytes. The caller has checked both ranges.
    pub(crate) fn cut(
        is_put: bool,
        (region, offset): (&Arc<RegionMemory>, usize),
        length: usize,
        (address, key): (u64, u32),
        progress: &Arc<Progress>,
    ) -> impl Iterator<Item = Self> {
        (0..length).step_by(LONGEST).map(move |from| {
            progress.begin();
            Self {
                is_put,
                region: Arc::clone(region),
                offset: offset + from,
                length: LONGEST.min(length - from) as u32,
                remote: (address.wrapping_add(from as u64), key),
                progress: Arc::clone(progress),
                ending: Ending::Lost,
                under_way: None,
            }
        })
    }

    /// Lets the connection count the transfer until it has ended.
    pub(crate) fn counted(mut self, under_way: &Arc<()>) -> Self {
        self.under_way = Some(Arc::clone(under_way));
        self
    }

    pub(crate) fn region(&self) -> &RegionMemory {
        &self.region
    }

    /// Does in the simulator what the device does for a get.
    #[cfg(test)]
    pub(crate) fn store(&self, bytes: &[u8]) {
        let Memory::Simulated(memory) = &self.region.memory else { unreachable!("a device stores the bytes") };
        memory.lock().unwrap()[self.offset..][..self.length as usize].copy_from_slice(bytes);
    }

    /// Returns the key, the address and the length of the bytes on this side.
    pub(crate) fn local(&self) -> (LocalKey, u64, u32) {
        (self.region.region().lkey(), self.region.address() + self.offset as u64, self.length)
    }

    /// Fails the request. The device may still use the region's memory, which stays registered until the process ends.
    pub(crate) fn leak(self) {
        std::mem::forget(Arc::clone(&self.region));
    }

    /// Completes the request. A request that is dropped without this call is lost.
    pub(crate) fn end(mut self, ending: Ending) {
        self.ending = ending;
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.progress.end(self.ending);
    }
}

/// How a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Ending {
    Done,
    /// The connection ended before.
    Lost,
    /// The peer's device has refused the key.
    Refused,
}

/// The progress of a batch.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    left: AtomicUsize,
    /// The worst [`Ending`] of the requests.
    worst: AtomicU8,
}

impl Progress {
    pub(crate) fn begin(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self, ending: Ending) {
        if ending != Ending::Done {
            self.worst.fetch_max(ending as u8, Ordering::Relaxed);
        }
        self.left.fetch_sub(1, Ordering::Release);
    }

    /// Returns `None` until all requests have ended, and then the worst of their ends.
    pub(crate) fn ended(&self) -> Option<Ending> {
        (self.left.load(Ordering::Acquire) == 0).then(|| match self.worst.load(Ordering::Relaxed) {
            0 => Ending::Done,
            refused if refused == Ending::Refused as u8 => Ending::Refused,
            _ => Ending::Lost,
        })
    }
}
