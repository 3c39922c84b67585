//! The memory of the messages.

use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::{LocalKey, OwnedMemoryRegion};
use sideway::ibverbs::protection_domain::ProtectionDomain;

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
    outgoing: OwnedMemoryRegion,
    incoming: OwnedMemoryRegion,
    /// Bytes of a message.
    size: u32,
    /// Bytes that the device puts in front of a message that comes in.
    headroom: u32,
    /// How many messages that go out have a place of their own.
    outgoing_places: usize,
    /// The same of those that come in.
    incoming_places: u64,
}

impl Buffers {
    /// This many places for messages of `size` bytes that go out, and for those that come in, each with `headroom` more in
    /// front.
    pub(super) fn new(
        pd: &Arc<ProtectionDomain>,
        size: u32,
        headroom: u32,
        outgoing_places: u32,
        incoming_places: u32,
    ) -> Result<Self> {
        let bytes = |size: u32, count: u32| (size as usize).checked_mul(count as usize);
        let padded = size.checked_add(headroom).context("the messages are too long")?;
        let outgoing = bytes(size, outgoing_places).context("there is no memory for so many messages")?;
        let incoming = bytes(padded, incoming_places).context("there is no memory for so many messages")?;
        Ok(Self {
            // The device only reads what it sends, and writes what it receives.
            outgoing: pd.reg_owned_mr(outgoing, AccessFlags::empty())?,
            incoming: pd.reg_owned_mr(incoming, AccessFlags::LocalWrite)?,
            size,
            headroom,
            outgoing_places: outgoing_places.max(1) as usize,
            incoming_places: incoming_places.max(1).into(),
        })
    }

    /// The place of a message that goes out. There may be fewer places than numbers of them.
    pub(super) fn outgoing(&self, place: usize) -> Piece {
        let offset = (place % self.outgoing_places) as u64 * u64::from(self.size);
        Piece { lkey: self.outgoing.lkey(), addr: self.outgoing.addr() + offset, length: self.size }
    }

    /// A place for a message that comes in, with the room in front of it. As above.
    pub(super) fn incoming(&self, place: u64) -> Piece {
        let length = self.headroom + self.size;
        let offset = place % self.incoming_places * u64::from(length);
        Piece { lkey: self.incoming.lkey(), addr: self.incoming.addr() + offset, length }
    }

    /// Writes a message that is to go out.
    pub(super) fn write(&mut self, place: usize, message: &[u8]) -> Result<()> {
        Ok(self.outgoing.write_at(place % self.outgoing_places * self.size as usize, message)?)
    }

    /// What stands in front of a message that has come in: all of the room there, up to a global routing header.
    pub(super) fn header(&self, place: u64) -> Result<[u8; 40]> {
        let mut header = [0; 40];
        let room = header.get_mut(..self.headroom as usize).context("there is no room for a header")?;
        let place = (place % self.incoming_places) as usize;
        self.incoming.read_at(place * (self.headroom + self.size) as usize, room)?;
        Ok(header)
    }

    /// Copies a message that has come in, without what stands in front of it.
    pub(super) fn read(&self, place: u64, message: &mut [u8]) -> Result<()> {
        let place = (place % self.incoming_places) as usize;
        let (size, headroom) = (self.size as usize, self.headroom as usize);
        Ok(self.incoming.read_at(place * (headroom + size) + headroom, message)?)
    }
}
