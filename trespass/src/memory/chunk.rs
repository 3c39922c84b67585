//! Memory that is registered as one region and divided into buffers of one size.

use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;

use sideway::error::VerbError;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::MemoryRegion;
use sideway::ibverbs::protection_domain::ProtectionDomain;

use super::buf::Piece;
use super::pages::Pages;
use super::pool::Lists;

/// The device with which a pool's memory is registered.
#[derive(Clone, Debug)]
pub(crate) struct Domain {
    pub(crate) pd: Arc<ProtectionDomain>,
    /// The access flags with which the pool's memory is registered.
    pub(crate) access: AccessFlags,
    /// Whether keys belong to memory windows.
    pub(crate) has_windows: bool,
}

impl Domain {
    /// Returns the access flags of regions. With windows, they permit binding windows to the region. Without windows,
    /// they are the access that every peer with the key has.
    pub(crate) fn region_access(&self) -> AccessFlags {
        let keys = match self.has_windows {
            true => AccessFlags::MemoryWindowBind,
            false => AccessFlags::RemoteRead | AccessFlags::RemoteWrite,
        };
        AccessFlags::LocalWrite | keys
    }
}

/// Buffers of one size.
#[derive(Debug)]
pub(super) struct Chunk {
    memory: Memory,
    lists: Arc<Lists>,
    /// The index of the chunk's list (by size), and the chunk's index within that list.
    size: usize,
    index: usize,
    stride: usize,
    count: usize,
}

/// The pages, registered if the pool has a device.
#[derive(Debug)]
pub(super) struct Memory {
    region: Option<Arc<MemoryRegion>>,
    pages: Option<Pages>,
}

impl Memory {
    pub(super) fn new(pages: Pages, domain: Option<&Domain>) -> Result<Self, VerbError> {
        let region = domain.map(|domain| {
            let address = pages.first().as_ptr().expose_provenance();
            // SAFETY:
            // - `drop` unmaps the bytes only if the registration has ended.
            // - The backend owns each buffer that the device may write, and holds no reference to its bytes during that
            //   time. Only the backend binds windows, to buffers that it owns until the key is revoked or the queue pair
            //   is destroyed. It lets peers write only through windows of type 2B whose bounds the device checks
            //   (`Device::announces`).
            // - On a device without windows, `access` has RemoteRead: a peer with the key may read bytes while the
            //   program writes them. The peer may then read a mix of old and new bytes, but this process is not
            //   affected.
            unsafe { domain.pd.reg_mr(address, pages.len(), domain.access) }
        });
        Ok(Self { region: region.transpose()?, pages: Some(pages) })
    }

    pub(super) fn bytes(&self) -> usize {
        self.pages.as_ref().map_or(0, Pages::len)
    }
}

impl Chunk {
    /// Divides memory into buffers of `stride` bytes.
    pub(super) fn new(memory: Memory, stride: usize, lists: Arc<Lists>, (size, index): (usize, usize)) -> Self {
        let count = memory.bytes() / stride;
        Self { memory, lists, size, index, stride, count }
    }

    pub(super) fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the first byte of a buffer. `number` must be below `count`.
    pub(super) fn at(&self, number: usize) -> NonNull<u8> {
        assert!(number < self.count, "a chunk has {} buffers", self.count);
        let first = self.memory.pages.as_ref().map_or(NonNull::dangling(), Pages::first);
        // SAFETY: `new` chose `count` so that this many strides fit into the pages, and `number` is below `count`.
        unsafe { first.add(number * self.stride) }
    }

    /// Returns the registration, or `None` if the pool has no device.
    #[inline]
    pub(super) fn region(&self) -> Option<&Arc<MemoryRegion>> {
        self.memory.region.as_ref()
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Returns the list to which the chunk's buffers return.
    #[inline]
    pub(super) fn home(&self) -> Home {
        Home { lists: Arc::clone(&self.lists), size: self.size }
    }

    #[inline]
    pub(super) fn is_of(&self, lists: &Arc<Lists>) -> bool {
        Arc::ptr_eq(&self.lists, lists)
    }
}

/// Finds the list of a size.
#[derive(Debug)]
pub(super) struct Home {
    lists: Arc<Lists>,
    size: usize,
}

impl Home {
    #[inline]
    pub(super) fn push(&self, piece: Box<Piece>) {
        if let Some(list) = self.lists.get(self.size) {
            list.push(piece);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Some(region) = self.region.take() else { return };
        let closed = match Arc::into_inner(region) {
            Some(region) => region.close().map_err(|error| error.to_string()),
            None => Err("the region is in use".to_owned()),
        };
        if let Err(error) = closed {
            // The device may still access the memory, so it is never unmapped.
            rdma_mummy_sys::log!(warn, "a pool leaks {} bytes: {error}", self.bytes());
            mem::forget(self.pages.take());
        }
    }
}
