//! Registered memory for messages.

use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::{LocalKey, OwnedMemoryRegion};
use sideway::ibverbs::protection_domain::ProtectionDomain;

/// A range of registered memory for a request.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// The key of the region.
    pub lkey: LocalKey,
    /// The first byte.
    pub addr: u64,
    /// The length in bytes.
    pub length: u32,
}

/// A region divided into slots of equal size. Slot numbers wrap: with one slot, all messages share it.
#[derive(Debug)]
pub struct Slots {
    memory: OwnedMemoryRegion,
    size: u32,
    count: u32,
}

impl Slots {
    /// Registers `count` slots of `size` bytes each.
    ///
    /// # Errors
    ///
    /// There is too little memory, or its registration fails.
    pub fn new(pd: &Arc<ProtectionDomain>, size: u32, count: u32, access: AccessFlags) -> Result<Self> {
        let bytes = (size as usize)
            .checked_mul(count as usize)
            .context("the buffers of all messages exceed the address space")?;
        // A region has at least one byte.
        Ok(Self { memory: pd.reg_owned_mr(bytes.max(1), access)?, size, count })
    }

    /// The number of slots.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The range of a slot.
    pub fn buffer(&self, slot: u32) -> Buffer {
        Buffer { lkey: self.memory.lkey(), addr: self.memory.addr() + self.offset(slot) as u64, length: self.size }
    }

    /// Copies bytes of a slot, from the offset `at`.
    ///
    /// # Errors
    ///
    /// The range exceeds the region.
    pub fn read(&self, slot: u32, at: u32, bytes: &mut [u8]) -> Result<()> {
        Ok(self.memory.read_at(self.offset(slot) + at as usize, bytes)?)
    }

    /// Writes a message into a slot.
    ///
    /// # Errors
    ///
    /// The message exceeds the region.
    pub fn write(&mut self, slot: u32, message: &[u8]) -> Result<()> {
        Ok(self.memory.write_at(self.offset(slot), message)?)
    }

    fn offset(&self, slot: u32) -> usize {
        (slot % self.count.max(1)) as usize * self.size as usize
    }
}
