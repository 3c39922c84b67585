//! The memory of the messages.

use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::LocalKey;
use sideway::ibverbs::protection_domain::ProtectionDomain;

use crate::memory::RegisteredMemory;

/// A range of registered memory, as a request names it.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// The key of the region.
    pub lkey: LocalKey,
    /// The first byte.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
}

/// Places for messages, of those that go out and of those that come in.
#[derive(Debug)]
pub(super) struct Buffers {
    outgoing: RegisteredMemory,
    incoming: RegisteredMemory,
    /// Bytes of a message.
    size: u32,
    /// Bytes that the device puts in front of a message that comes in.
    headroom: u32,
    /// How many messages that come in have a place of their own.
    places: u64,
}

impl Buffers {
    /// Places for `outgoing` messages of `size` bytes, and `places` for those that come in, each with `headroom` more in front.
    pub(super) fn new(
        pd: &Arc<ProtectionDomain>,
        size: u32,
        headroom: u32,
        outgoing: u32,
        places: u32,
    ) -> Result<Self> {
        let bytes = |size: u32, count: u32| (size as usize).checked_mul(count as usize);
        let padded = size.checked_add(headroom).context("the messages are too long")?;
        let outgoing = bytes(size, outgoing).context("there is no memory for so many messages")?;
        let incoming = bytes(padded, places).context("there is no memory for so many messages")?;
        Ok(Self {
            // The device only reads what it sends, and writes what it receives.
            outgoing: RegisteredMemory::new(pd, outgoing, AccessFlags::empty())?,
            incoming: RegisteredMemory::new(pd, incoming, AccessFlags::LocalWrite)?,
            size,
            headroom,
            places: places.max(1).into(),
        })
    }

    /// The place of a message that goes out.
    pub(super) fn outgoing(&self, place: usize) -> Piece {
        let offset = place as u64 * u64::from(self.size);
        Piece { lkey: self.outgoing.lkey(), addr: self.outgoing.addr() + offset, length: self.size }
    }

    /// A place for a message that comes in, with the room in front of it. There may be fewer places than numbers of them.
    pub(super) fn incoming(&self, place: u64) -> Piece {
        let length = self.headroom + self.size;
        let offset = place % self.places * u64::from(length);
        Piece { lkey: self.incoming.lkey(), addr: self.incoming.addr() + offset, length }
    }

    /// Writes a message that is to go out.
    pub(super) fn write(&mut self, place: usize, message: &[u8]) {
        self.outgoing.write(place * self.size as usize, message);
    }

    /// Copies a message that has come in, without what stands in front of it.
    pub(super) fn read(&self, place: u64, message: &mut [u8]) {
        let place = (place % self.places) as usize;
        let (size, headroom) = (self.size as usize, self.headroom as usize);
        self.incoming.read(place * (headroom + size) + headroom, message);
    }
}
