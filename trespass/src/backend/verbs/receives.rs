//! The shared receive queue, and its posted buffers.

use std::io;

use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;

use crate::memory::Buf;

/// The bit that distinguishes numbers of receives from those of requests.
const RECEIVE: u64 = 1 << 63;

/// The receives of all queue pairs. The queue is dropped before the buffers.
#[derive(Debug)]
pub(super) struct Receives {
    queue: SharedReceiveQueue,
    posted: Vec<Option<Buf>>,
    free: Vec<u32>,
    /// Whether a queue pair could not be destroyed, so that the device may use the posted buffers.
    leaks: bool,
}

impl Receives {
    pub(super) fn new(queue: SharedReceiveQueue, depth: u32) -> Self {
        Self { queue, posted: (0..depth).map(|_| None).collect(), free: (0..depth).rev().collect(), leaks: false }
    }

    pub(super) fn queue(&self) -> &SharedReceiveQueue {
        &self.queue
    }

    /// Posts as many buffers as the queue has space for, in one list.
    ///
    /// # Errors
    ///
    /// The driver rejected the list. Buffers that it may have accepted stay here.
    pub(super) fn post(&mut self, buffers: &mut Vec<Buf>) -> io::Result<()> {
        let count = buffers.len().min(self.free.len());
        if count == 0 {
            return Ok(());
        }
        let mut guard = self.queue.start_post_recv();
        for buf in buffers.drain(buffers.len() - count..) {
            // A buffer without a registration is not posted; it returns to its pool.
            let Some(region) = buf.region() else { continue };
            let (Some(slot), Ok(length)) = (self.free.pop(), u32::try_from(buf.len())) else { continue };
            let (lkey, address) = (region.lkey(), buf.as_ptr() as u64);
            // SAFETY: the bytes are registered and belong to the buffer, which stays in `posted` until its completion
            // was polled or the queue was destroyed. Until then, no reference to the bytes exists.
            unsafe { guard.construct_wr(Self::number(slot)).setup_sge(lkey, address, length) };
            if let Some(place) = self.posted.get_mut(slot as usize) {
                *place = Some(buf);
            }
        }
        guard.post().map_err(|error| io::Error::other(error.to_string()))
    }

    #[inline]
    pub(super) fn number(slot: u32) -> u64 {
        RECEIVE | u64::from(slot)
    }

    /// Whether `wr_id` belongs to a receive.
    #[inline]
    pub(super) fn is_receive(wr_id: u64) -> bool {
        wr_id & RECEIVE != 0
    }

    /// Returns the buffer of a completed receive.
    #[inline]
    pub(super) fn take(&mut self, wr_id: u64) -> Option<Buf> {
        let slot = wr_id as u32;
        let buf = self.posted.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(buf)
    }

    /// Returns the number of posted receives.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.posted.len() - self.free.len()
    }

    /// Records that a queue pair was not destroyed. The posted buffers will then be leaked when the queue is dropped,
    /// because the device may still use them. Other queue pairs continue.
    pub(super) fn leak(&mut self) {
        self.leaks = true;
    }
}

impl Drop for Receives {
    fn drop(&mut self) {
        if self.leaks {
            self.posted.drain(..).for_each(std::mem::forget);
        }
    }
}
