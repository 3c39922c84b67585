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
    /// The first `free` entries are the numbers of the empty slots of `posted`.
    slots: Box<[u32]>,
    free: usize,
    /// Whether a queue pair could not be destroyed, so that the device may use the posted buffers.
    leaks: bool,
}

impl Receives {
    pub(super) fn new(queue: SharedReceiveQueue, depth: u32) -> Self {
        let (posted, slots) = ((0..depth).map(|_| None).collect(), (0..depth).rev().collect());
        Self { queue, posted, slots, free: depth as usize, leaks: false }
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
        let count = buffers.len().min(self.free);
        if count == 0 {
            return Ok(());
        }
        let mut guard = self.queue.start_post_recv();
        for buf in buffers.drain(buffers.len() - count..) {
            // A buffer without a registration is not posted; it returns to its pool.
            let Some(region) = buf.region() else { continue };
            let Some(&slot) = self.slots.get(self.free.wrapping_sub(1)) else { continue };
            self.free -= 1;
            let (lkey, address, length) = (region.lkey(), buf.as_ptr() as u64, buf.len() as u32);
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
        if let Some(place) = self.slots.get_mut(self.free) {
            *place = slot;
            self.free += 1;
        }
        Some(buf)
    }

    /// Returns the number of posted receives.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.posted.len() - self.free
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
