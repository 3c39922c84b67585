//! The completion ring: frames that were sent.

use std::fmt;
use std::ptr::NonNull;

use super::{Fill, Side, Tx, fill, side};
use crate::ring::{Consumer, ConsumerBatch, transfer};
use crate::sys::Desc;
use crate::umem::{Frame, METADATA_LEN, Pool, Region, Token, is_packet, timestamp};

/// The completion ring of a socket: frames whose packets were sent or dropped by the device.
///
/// The ring returns the frames of all sockets on its queue.
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

    /// Begins a batch of up to `max` frames.
    #[inline]
    pub fn batch(&mut self, max: usize) -> CompletionBatch<'_> {
        let geometry = self.side.holder.geometry();
        let (region, mask, last) = (self.side.holder.pointer(), geometry.start_mask(), geometry.last_start());
        CompletionBatch { batch: self.consumer.batch(u32::try_from(max).unwrap_or(u32::MAX)), region, mask, last }
    }

    /// Moves all completed frames to a pool, and returns their number. Moves nothing if the pool belongs to another
    /// UMEM.
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

impl CompletionBatch<'_> {
    /// Passes each frame to a fill ring, to receive into it. Returns the number of frames.
    ///
    /// It stops early if the fill ring is full, and does nothing if the fill ring belongs to another UMEM. The
    /// remaining frames stay in the completion ring.
    #[inline]
    pub fn refill(self, to: &mut Fill) -> usize {
        let Self { batch, region, mask, last } = self;
        let to = to.entries(batch.len(), region);
        transfer(batch, to, |addr| {
            // SAFETY: the entry was in the completion ring, whose batch keeps the region.
            unsafe { token(addr, region, mask, last) }.map(fill::give).ok_or(None::<Frame>)
        })
    }

    /// Passes each frame to `write`, which returns the offset and the length of the frame's next packet, and then to a
    /// TX ring. Returns the number of frames.
    ///
    /// This is the fastest way to generate packets. It stops early if the TX ring is full, and does nothing if the TX
    /// ring belongs to another UMEM. The remaining frames stay in the completion ring. A frame is dropped if its packet
    /// is invalid, as in [`Frame::packet`].
    #[inline]
    pub fn send(self, to: &mut Tx, mut write: impl FnMut(&mut Frame) -> (usize, usize)) -> usize {
        let Self { batch, region, mask, last } = self;
        let to = to.entries(batch.len(), region);
        // SAFETY: the batch keeps the region.
        let geometry = *unsafe { region.as_ref() }.geometry();
        let (size, shift) = (geometry.frame_size as usize, geometry.offset_shift());
        transfer(batch, to, |addr| {
            // SAFETY: the entry was in the completion ring, whose batch keeps the region.
            let token = unsafe { token(addr & mask, region, mask, last) }.ok_or(None)?;
            let mut frame = Frame::at_start(token);
            let (offset, len) = write(&mut frame);
            // The closure may have replaced the frame by another one.
            if !is_packet(size, offset, len) || !frame.token().belongs_to(region) {
                return Err(Some(frame));
            }
            let token = frame.into_token();
            token.region().pass(token.addr(), true);
            Ok(Desc { addr: token.into_addr() + ((offset as u64) << shift), len: len as u32, options: 0 })
        })
    }
}

/// The frame of an address.
///
/// # Safety
///
/// The address was in a completion ring with this region, which exists, and becomes a frame once.
#[inline]
unsafe fn token(addr: u64, region: NonNull<Region>, mask: u64, last: u64) -> Option<Token> {
    if addr & mask > last {
        // The address is not that of a frame that was sent: a fault of the kernel, or of a process that shares the
        // memory.
        return None;
    }
    // SAFETY: the kernel returns the address of each packet once, as it was written to the TX ring.
    let token = unsafe { Token::new(region, addr) };
    token.region().pass(addr, false);
    Some(token)
}

impl Iterator for CompletionBatch<'_> {
    type Item = Sent;

    #[inline]
    fn next(&mut self) -> Option<Sent> {
        loop {
            let addr = self.batch.pop()?;
            // SAFETY: the entry was in the completion ring, whose batch keeps the region.
            if let Some(token) = unsafe { token(addr, self.region, self.mask, self.last) } {
                return Some(Sent { token });
            }
        }
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.batch.len() as usize;
        (len, Some(len))
    }
}

/// A frame whose packet was sent.
pub struct Sent {
    token: Token,
}

impl Sent {
    /// The time of transmission in nanoseconds, if the packet's [`TxMetadata`](crate::TxMetadata) requested it and the
    /// driver supports it.
    ///
    /// The clock is the NIC's in zero copy, and TAI in copy mode. The value has no meaning for a packet without
    /// metadata.
    pub fn timestamp(&self) -> Option<u64> {
        if !self.token.region().geometry().has_metadata {
            return None;
        }
        let offset = self.token.offset();
        timestamp(&self.token.bytes()[offset.checked_sub(METADATA_LEN)?..offset])
    }

    /// The frame.
    #[inline]
    pub fn into_frame(self) -> Frame {
        Frame::new(self.token)
    }
}

impl From<Sent> for Frame {
    #[inline]
    fn from(sent: Sent) -> Self {
        sent.into_frame()
    }
}

impl fmt::Debug for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sent").field("frame", &self.token.start()).finish_non_exhaustive()
    }
}
