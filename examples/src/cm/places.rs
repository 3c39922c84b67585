//! Memory for messages that come in.

use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::{LocalKey, OwnedMemoryRegion};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;

/// Places of `size` bytes each, one behind the other.
#[derive(Debug)]
pub struct Places {
    memory: OwnedMemoryRegion,
    size: u32,
    count: u32,
}

impl Places {
    /// So many places.
    ///
    /// # Errors
    ///
    /// There is no memory for them, or none that can be registered.
    pub fn new(pd: &Arc<ProtectionDomain>, size: u32, count: u32) -> Result<Self> {
        let bytes = (size as usize).checked_mul(count as usize).context("there is no memory for so many messages")?;
        // A region has at least a byte.
        let memory = pd.reg_owned_mr(bytes.max(1), AccessFlags::LocalWrite)?;
        Ok(Self { memory, size, count })
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Copies the message at a place.
    ///
    /// # Errors
    ///
    /// There is no such place.
    pub fn read(&self, place: u32) -> Result<Vec<u8>> {
        let mut message = vec![0; self.size as usize];
        self.memory.read_at(place as usize * self.size as usize, &mut message)?;
        Ok(message)
    }

    /// Writes a message to a place.
    ///
    /// # Errors
    ///
    /// There is no such place, or the message does not fit.
    pub fn write(&mut self, place: u32, message: &[u8]) -> Result<()> {
        Ok(self.memory.write_at(place as usize * self.size as usize, message)?)
    }

    /// The registered memory of a place: key, address and length.
    pub(super) fn entry(&self, place: u32) -> (LocalKey, u64, u32) {
        (self.memory.lkey(), self.memory.addr() + u64::from(place) * u64::from(self.size), self.size)
    }
}

/// A shared receive queue, with the memory of its receives. Each [`Link`](super::Link) that uses it holds it.
#[derive(Debug)]
pub struct SharedReceives {
    // Dropped before the memory that its receives name.
    queue: SharedReceiveQueue,
    places: Places,
}

impl SharedReceives {
    /// A queue with a receive of `size` bytes for each of `count` messages.
    ///
    /// # Errors
    ///
    /// The device has no room for so many.
    pub fn new(pd: &Arc<ProtectionDomain>, size: u32, count: u32) -> Result<Self> {
        let places = Places::new(pd, size, count)?;
        let mut queue = pd.create_srq_builder().setup_max_wr(count.max(1)).build()?;
        let mut batch = queue.start_post_recv();
        for place in 0..count {
            let (lkey, addr, length) = places.entry(place);
            // SAFETY: the memory is registered and as long, nobody refers to it, and it is copied from once the receive has
            // completed. The queue exists as long as queue pairs use it; those are of links alone, which hold `self` with the
            // memory behind them, and the memory stands behind the queue here.
            unsafe { batch.construct_wr(place.into()).setup_sge(lkey, addr, length) };
        }
        batch.post()?;
        Ok(Self { queue, places })
    }

    /// The queue, for links.
    pub(super) fn queue(&self) -> &SharedReceiveQueue {
        &self.queue
    }

    /// Where the messages are.
    pub fn places(&self) -> &Places {
        &self.places
    }
}
