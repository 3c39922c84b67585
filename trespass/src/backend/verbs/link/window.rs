//! Keys that give the peer access to this side's memory.

use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::{MemoryRegion, RemoteKey};
use sideway::ibverbs::memory_window::{BindInformation, MemoryWindow};

use crate::memory::{Buf, Ending, Progress, RegionMemory};

/// A key to memory. It belongs to a memory window if the device supports them.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) window: Option<MemoryWindow>,
    pub(super) key: RemoteKey,
    pub(super) held: Option<Held>,
    /// Whether the window must be bound before the next request.
    pub(super) is_unbound: bool,
    /// Whether the key is being revoked.
    pub(super) is_closing: bool,
}

/// The memory to which a key gives access.
#[derive(Debug)]
pub(in crate::backend::verbs) enum Held {
    /// A message that the peer reads.
    Buf(Buf),
    /// Bytes of a region. The progress completes when the key is invalid.
    Region { memory: Arc<RegionMemory>, offset: usize, length: usize, access: AccessFlags, closed: Arc<Progress> },
}

impl Held {
    pub(super) fn region(&self) -> Option<&Arc<MemoryRegion>> {
        match self {
            Self::Buf(buf) => buf.region(),
            Self::Region { memory, .. } => Some(memory.region()),
        }
    }

    pub(super) fn address(&self) -> u64 {
        match self {
            Self::Buf(buf) => buf.as_ptr() as u64,
            Self::Region { memory, offset, .. } => memory.address() + *offset as u64,
        }
    }

    pub(super) fn bind<'r>(&self, region: &'r MemoryRegion) -> BindInformation<'r> {
        let (length, access) = match self {
            Self::Buf(buf) => (buf.len(), AccessFlags::RemoteRead),
            Self::Region { length, access, .. } => (*length, *access),
        };
        BindInformation::new(region, self.address(), length as u64, access)
    }

    /// Releases the memory after the key has become invalid.
    pub(super) fn release(self, spare: &mut Vec<Buf>) {
        match self {
            Self::Buf(buf) => spare.push(buf),
            Self::Region { closed, .. } => closed.end(Ending::Done),
        }
    }
}

pub(super) fn bound(window: Option<&mut Window>) {
    let Some(Window { window: Some(window), key, .. }) = window else { return };
    if let Err(error) = window.set_rkey(*key) {
        rdma_mummy_sys::log!(debug, "{error}");
    }
}
