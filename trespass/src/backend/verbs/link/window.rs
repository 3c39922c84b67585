//! Keys that give the peer access to this side's memory.

use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::{MemoryRegion, RemoteKey};
use sideway::ibverbs::memory_window::{BindInformation, MemoryWindow};

use crate::backend::Request;
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
    /// The message that the peer has written to the buffer.
    pub(super) landed: Option<Landed>,
}

/// A message that the peer has written to an announced buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Landed {
    pub(super) token: u32,
    pub(super) length: u32,
}

impl Window {
    /// Whether this is the window whose key the request revokes.
    pub(super) fn is_for(&self, request: &Request) -> bool {
        match (request, &self.held) {
            // Without windows, all buffers of a chunk share the chunk's key.
            (Request::Conceal(remote) | Request::Land { remote, .. }, Some(held @ Held::Buf(..))) => {
                held.address() == remote.address && self.key.raw() == remote.key
            }
            (Request::Revoke(asked), Some(Held::Region { closed, .. })) => Arc::ptr_eq(asked, closed),
            _ => false,
        }
    }

    /// Releases the memory after the key has become invalid. Returns a message that the peer has written.
    pub(super) fn release(&mut self, spare: &mut Vec<Buf>) -> Option<(u32, Buf)> {
        self.is_closing = false;
        match (self.held.take()?, self.landed.take()) {
            (Held::Buf(mut message, _), Some(Landed { token, length })) => {
                message.truncate(length as usize);
                Some((token, message))
            }
            (held, _) => {
                held.release(spare);
                None
            }
        }
    }
}

/// The memory to which a key gives access.
#[derive(Debug)]
pub(in crate::backend::verbs) enum Held {
    /// A message that the peer reads, or a buffer to which it writes one.
    Buf(Buf, AccessFlags),
    /// Bytes of a region. The progress completes when the key is invalid.
    Region { memory: Arc<RegionMemory>, offset: usize, length: usize, access: AccessFlags, closed: Arc<Progress> },
}

impl Held {
    pub(super) fn region(&self) -> Option<&Arc<MemoryRegion>> {
        match self {
            Self::Buf(buf, _) => buf.region(),
            Self::Region { memory, .. } => Some(memory.region()),
        }
    }

    /// Whether the peer writes a message to this memory.
    pub(super) fn is_announced(&self) -> bool {
        matches!(self, Self::Buf(_, AccessFlags::RemoteWrite))
    }

    pub(super) fn address(&self) -> u64 {
        match self {
            Self::Buf(buf, _) => buf.as_ptr() as u64,
            Self::Region { memory, offset, .. } => memory.address() + *offset as u64,
        }
    }

    pub(super) fn bind<'r>(&self, region: &'r MemoryRegion) -> BindInformation<'r> {
        let (length, access) = match self {
            Self::Buf(buf, access) => (buf.len(), *access),
            Self::Region { length, access, .. } => (*length, *access),
        };
        BindInformation::new(region, self.address(), length as u64, access)
    }

    /// Releases the memory after the key has become invalid.
    pub(super) fn release(self, spare: &mut Vec<Buf>) {
        match self {
            Self::Buf(buf, _) => spare.push(buf),
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
