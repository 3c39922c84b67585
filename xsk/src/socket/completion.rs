//! The completion ring: frames that were sent.

use std::ptr::NonNull;

use super::{Side, side};
use crate::ring::{Consumer, ConsumerBatch};
use crate::umem::{Frame, METADATA_LEN, Pool, Region, timestamp};

/// The completion ring of a socket: frames whose packets were sent or dropped by the device.
///
/// It returns the frames of all sockets of its queue.
#[doc(alias = "XDP_UMEM_COMPLETION_RING")]
#[derive(Debug)]
pub struct Completion {
    consumer: Consumer<u64>,
    side: Side,
}

side!(Completion);

impl Completion {
    pub(crate) fn new(consumer: Consumer<u64>, side: Side) -> Self {
        Self { consumer, side }
    }

    /// A batch of up to `max` frames.
    #[inline]
    pub fn batch(&mut self, max: usize) -> CompletionBatch<'_> {
        let geometry = self.side.holder.geometry();
        let (region, mask, last) = (self.side.holder.pointer(), geometry.start_mask(), geometry.last_start());
        CompletionBatch { batch: self.consumer.batch(u32::try_from(max).unwrap_or(u32::MAX)), region, mask, last }
    }

    /// Moves all completed frames to a pool, and returns their number. Nothing moves to the pool of another UMEM.
    pub fn collect(&mut self, pool: &mut Pool) -> usize {
        let mut count = 0;
        for sent in self.batch(usize::MAX) {
            if pool.put(sent).is_err() {
                break;
            }
            count += 1;
        }
        count
    }

    /// Frames that can be taken now.
    pub fn available(&self) -> usize {
        self.consumer.available() as usize
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.side.holder.settle(self.consumer.total());
    }
}

/// Completed frames. Those that the loop does not take stay in the ring.
#[derive(Debug)]
pub struct CompletionBatch<'a> {
    batch: ConsumerBatch<'a, u64>,
    region: NonNull<Region>,
    mask: u64,
    last: u64,
}

// SAFETY: the batch borrows the ring, which may be used from any thread.
unsafe impl Send for CompletionBatch<'_> {}

impl Iterator for CompletionBatch<'_> {
    type Item = Sent;

    #[inline]
    fn next(&mut self) -> Option<Sent> {
        loop {
            let addr = self.batch.pop()?;
            let start = addr & self.mask;
            if start > self.last {
                // No frame of ours: a fault of the kernel or of a process that shares the memory.
                continue;
            }
            let offset = (addr - start) as u32 | (addr >> 48) as u32;
            // SAFETY: the kernel returns the address of each packet once, as `TxBatch` wrote it. While the batch exists, its ring keeps the
            // region.
            let frame = unsafe { Frame::new(self.region, start as u32) };
            frame.region().pass(frame.offset(), false);
            return Some(Sent { frame, offset: offset as u16 });
        }
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.batch.len() as usize;
        (len, Some(len))
    }
}

/// A frame whose packet was sent.
#[derive(Debug)]
pub struct Sent {
    frame: Frame,
    offset: u16,
}

impl Sent {
    /// The time of transmission in nanoseconds, if the packet's [`TxMetadata`](crate::TxMetadata) requested it and the driver supports it.
    ///
    /// The clock is the NIC's in zero copy, and TAI in copy mode. The value has no meaning for a packet without metadata.
    pub fn timestamp(&self) -> Option<u64> {
        if !self.frame.region().geometry().has_metadata {
            return None;
        }
        let offset = usize::from(self.offset);
        timestamp(&self.frame.bytes()[offset.checked_sub(METADATA_LEN)?..offset])
    }

    /// The frame.
    #[inline]
    pub fn into_frame(self) -> Frame {
        self.frame
    }
}

impl From<Sent> for Frame {
    #[inline]
    fn from(sent: Sent) -> Self {
        sent.frame
    }
}
