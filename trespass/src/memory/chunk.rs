//! Memory that is registered in one piece and cut into buffers of one size.

use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;

use sideway::error::VerbError;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::MemoryRegion;
use sideway::ibverbs::protection_domain::ProtectionDomain;

use super::free_list::Link;
use super::pages::Pages;

/// The device that a pool's memory is registered with.
#[derive(Clone, Debug)]
pub(crate) struct Domain {
    pub(crate) pd: Arc<ProtectionDomain>,
    /// What requests, windows and peers may do with the memory.
    pub(crate) access: AccessFlags,
    /// Whether keys belong to memory windows.
    pub(crate) has_windows: bool,
}

impl Domain {
    /// How regions are registered: for windows that open parts of them, or for every peer that gets the key.
    pub(crate) fn region_access(&self) -> AccessFlags {
        let keys = match self.has_windows {
            true => AccessFlags::MemoryWindowBind,
            false => AccessFlags::RemoteRead | AccessFlags::RemoteWrite,
        };
        AccessFlags::LocalWrite | keys
    }
}

/// Buffers of `stride` bytes, each with a link for the free list.
#[derive(Debug)]
pub(super) struct Chunk {
    region: Option<Arc<MemoryRegion>>,
    links: Box<[Link]>,
    stride: usize,
    /// The index of its size among those of the pool.
    size: u32,
    pages: Option<Pages>,
}

impl Chunk {
    /// Cuts `pages` into at most `most` buffers, after it has registered them.
    pub(super) fn new(
        pages: Pages,
        (size, stride): (u32, usize),
        most: usize,
        domain: Option<&Domain>,
    ) -> Result<Self, VerbError> {
        let links = (0..(pages.len() / stride).min(most)).map(|_| Link::default()).collect();
        let region = domain.map(|domain| {
            let address = pages.first().as_ptr().expose_provenance();
            // SAFETY:
            // - The bytes stay mapped: `drop` unmaps them after the registration has ended, or not at all.
            // - A buffer that the device may write is owned by the backend, which holds no reference to its bytes meanwhile; windows
            //   are bound by the backend alone, to buffers that it owns until the key has been taken back.
            // - On a device without windows, `access` has RemoteRead: a peer with the key may read bytes while the program writes
            //   them. The peer gets some mixture and this process is not affected; the manual of `Options` states this.
            unsafe { domain.pd.reg_mr(address, pages.len(), domain.access) }
        });
        Ok(Self { region: region.transpose()?, links, stride, size, pages: Some(pages) })
    }

    pub(super) fn bytes(&self) -> usize {
        self.pages.as_ref().map_or(0, Pages::len)
    }

    #[inline]
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    #[inline]
    pub(super) fn links(&self) -> &[Link] {
        &self.links
    }

    /// The first byte of a buffer.
    #[inline]
    pub(super) fn at(&self, number: usize) -> Option<NonNull<u8>> {
        let pages = self.pages.as_ref().filter(|_| number < self.links.len())?;
        // SAFETY: `number` is below `links.len()`, which `new` chose so that this many strides fit into the pages.
        Some(unsafe { pages.first().add(number * self.stride) })
    }

    /// The registration; `None` if the pool has no device.
    #[inline]
    pub(super) fn region(&self) -> Option<&Arc<MemoryRegion>> {
        self.region.as_ref()
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let Some(region) = self.region.take() else { return };
        let closed = match Arc::into_inner(region) {
            Some(region) => region.close().map_err(|error| error.to_string()),
            None => Err("the region is in use".to_owned()),
        };
        if let Err(error) = closed {
            // The device may still know the memory, so it is never given back.
            log::warn!("a pool leaks {} bytes: {error}", self.bytes());
            mem::forget(self.pages.take());
        }
    }
}
