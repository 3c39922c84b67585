//! The RX ring: received packets.

use std::ptr::NonNull;
use std::time::Duration;

use super::{Side, side};
use crate::error::Error;
use crate::ring::{Consumer, ConsumerBatch};
use crate::sys::Desc;
use crate::umem::{CONTINUES, Frame, Packet, Region};

/// The RX ring of a socket.
#[doc(alias = "XDP_RX_RING")]
#[derive(Debug)]
pub struct Rx {
    consumer: Consumer<Desc>,
    side: Side,
}

side!(Rx);

impl Rx {
    pub(crate) fn new(consumer: Consumer<Desc>, side: Side) -> Self {
        Self { consumer, side }
    }

    /// A batch of up to `max` received packets.
    #[inline]
    pub fn batch(&mut self, max: usize) -> RxBatch<'_> {
        let (region, mask) = (self.side.holder.pointer(), self.side.holder.geometry().start_mask());
        RxBatch { batch: self.consumer.batch(u32::try_from(max).unwrap_or(u32::MAX)), region, mask }
    }

    /// Packets, or pieces of packets, that can be received now.
    pub fn available(&self) -> usize {
        self.consumer.available() as usize
    }

    /// `poll(POLLIN)` — waits for packets. Returns `false` after the time-out.
    ///
    /// # Errors
    ///
    /// The interface was removed.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, Error> {
        if self.available() != 0 {
            return Ok(true);
        }
        self.side.socket.wait(libc::POLLIN, timeout)
    }

    /// `recvfrom(fd, NULL, 0, MSG_DONTWAIT, …)` — lets the driver receive on this thread (busy polling).
    ///
    /// # Errors
    ///
    /// The interface was removed, or its link is down.
    pub fn busy_poll(&mut self) -> Result<(), Error> {
        self.side.socket.kick_rx()
    }
}

impl Drop for Rx {
    fn drop(&mut self) {
        self.side.holder.settle(self.consumer.total());
    }
}

/// Received packets. Those that the loop does not take stay in the ring.
#[derive(Debug)]
pub struct RxBatch<'a> {
    batch: ConsumerBatch<'a, Desc>,
    region: NonNull<Region>,
    mask: u64,
}

// SAFETY: the batch borrows the ring, which may be used from any thread.
unsafe impl Send for RxBatch<'_> {}

impl Iterator for RxBatch<'_> {
    type Item = Packet;

    #[inline]
    fn next(&mut self) -> Option<Packet> {
        let Desc { addr, len, options } = self.batch.pop()?;
        // An address is the start of the frame and the offset of the data: in its upper 16 bits in unaligned mode, added otherwise.
        let start = addr & self.mask;
        let offset = (addr - start) as u32 | (addr >> 48) as u32;
        // SAFETY: the kernel returns each frame of the fill ring once. While the batch exists, its ring keeps the region.
        let frame = unsafe { Frame::new(self.region, start as u32) };
        frame.region().pass(frame.offset(), false);
        Some(Packet::new(frame, offset as u16, len as u16, options & CONTINUES))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.batch.len() as usize;
        (len, Some(len))
    }
}

impl ExactSizeIterator for RxBatch<'_> {}
