//! The fill ring: frames to receive into.

use std::ptr::NonNull;

use super::{Side, side};
use crate::error::Error;
use crate::ring::{Producer, ProducerBatch};
use crate::umem::{Frame, Pool, Region, Token};

/// The fill ring of a socket: frames that the kernel may receive into.
#[doc(alias = "XDP_UMEM_FILL_RING")]
#[derive(Debug)]
pub struct Fill {
    producer: Producer<u64>,
    side: Side,
}

side!(Fill);

impl Fill {
    pub(crate) fn new(producer: Producer<u64>, side: Side) -> Self {
        Self { producer, side }
    }

    /// Begins a batch of up to `max` frames. The batch has less [`space`](FillBatch::space) if the ring is nearly full.
    #[inline]
    pub fn batch(&mut self, max: usize) -> FillBatch<'_> {
        let region = self.side.holder.pointer();
        FillBatch { batch: self.producer.batch(u32::try_from(max).unwrap_or(u32::MAX)), region }
    }

    /// The ring of this batch, for entries that move from another ring.
    #[inline]
    pub(super) fn entries(&mut self, max: u32, region: NonNull<Region>) -> ProducerBatch<'_, u64> {
        self.producer.batch(if self.side.holder.pointer() == region { max } else { 0 })
    }

    /// Moves frames from a pool to the ring until the ring is full, and returns their number.
    ///
    /// It stops early if the pool is empty or belongs to another UMEM.
    pub fn refill(&mut self, pool: &mut Pool) -> usize {
        let mut batch = self.batch(usize::MAX);
        let space = batch.space();
        while batch.space() != 0 {
            let Some(frame) = pool.take() else { break };
            if let Err(frame) = batch.put(frame) {
                // This cannot fail: a pool takes its own frame back.
                drop(pool.put(frame));
                break;
            }
        }
        space - batch.space()
    }

    /// Frames in the ring that the kernel has not taken yet.
    pub fn pending(&self) -> usize {
        self.producer.pending() as usize
    }

    /// Whether the driver waits for a [`wake`](Self::wake) before it takes frames.
    #[inline]
    #[doc(alias = "XDP_RING_NEED_WAKEUP")]
    pub fn needs_wakeup(&self) -> bool {
        self.producer.ring().needs_wakeup()
    }

    /// `recvfrom(fd, NULL, 0, MSG_DONTWAIT, …)` — wakes the driver if it has requested this.
    ///
    /// # Errors
    ///
    /// The interface was removed, or its link is down.
    #[inline]
    pub fn wake(&mut self) -> Result<(), Error> {
        if self.needs_wakeup() { self.side.socket.kick_rx() } else { Ok(()) }
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        self.side.holder.settle(self.producer.total().wrapping_neg());
    }
}

/// Frames that pass to the kernel when the batch is dropped.
#[derive(Debug)]
pub struct FillBatch<'a> {
    batch: ProducerBatch<'a, u64>,
    region: NonNull<Region>,
}

// SAFETY: the batch borrows the ring, which may be used from any thread.
unsafe impl Send for FillBatch<'_> {}

impl FillBatch<'_> {
    /// Frames that still fit.
    #[inline]
    pub fn space(&self) -> usize {
        self.batch.space() as usize
    }

    /// Adds a frame, or the frame of a packet.
    ///
    /// # Errors
    ///
    /// Returns the frame if the batch is full, or if it belongs to another UMEM.
    #[inline]
    pub fn put(&mut self, frame: impl Into<Frame>) -> Result<(), Frame> {
        let frame = frame.into();
        if self.batch.space() == 0 || !frame.token().belongs_to(self.region) {
            return Err(frame);
        }
        // SAFETY: there is space.
        unsafe { self.batch.push(give(frame.into_token())) };
        Ok(())
    }
}

/// Transfers a frame to the kernel, which ignores the offset in its address.
#[inline]
pub(super) fn give(token: Token) -> u64 {
    token.region().pass(token.addr(), true);
    token.into_addr()
}
