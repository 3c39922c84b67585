//! Receive queues of a QP, and shared receive queues.

mod ring;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard};

use smallvec::SmallVec;

use self::ring::Ring;
use crate::mem::Piece;
use crate::mem::domain::Domain;
use crate::sys::errno::Errno;
use crate::sys::unpoisoned;
use crate::wire::limits::MAX_SRQ_WR;

/// A receive request that the program has posted. Most requests have one piece, which is stored inline: a queue may
/// hold many thousand requests, and a message would find their vectors outside of the cache. A later request reuses the
/// vector of a completed one.
#[derive(Debug, Default)]
pub(crate) struct ReceiveWork {
    pub(crate) wr_id: u64,
    pub(crate) pieces: SmallVec<[Piece; 1]>,
}

/// Events of a shared receive queue, implemented by the C API. The caller holds locks of the device, so implementations
/// neither block nor call back.
pub(crate) trait ReceiveEvents: Debug + Send + Sync {
    /// The number of receives has fallen below the limit (`IBV_EVENT_SRQ_LIMIT_REACHED`), which is now disarmed.
    fn limit_reached(&self);
}

/// A queue of receive requests in the order in which they were posted.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    ring: Mutex<Ring>,
    max_sge: u32,
    sharing: Option<Sharing>,
}

/// The state that only a shared receive queue has.
#[derive(Debug)]
struct Sharing {
    domain: Arc<Domain>,
    events: Box<dyn ReceiveEvents>,
}

impl ReceiveQueue {
    /// Creates the queue of a QP.
    pub(crate) fn new(max_wr: u32, max_sge: u32) -> Self {
        Self { ring: Mutex::new(Ring::new(max_wr)), max_sge, sharing: None }
    }

    /// Creates a shared queue.
    pub(crate) fn shared(domain: Arc<Domain>, max_wr: u32, max_sge: u32, events: Box<dyn ReceiveEvents>) -> Self {
        Self { ring: Mutex::new(Ring::new(max_wr)), max_sge, sharing: Some(Sharing { domain, events }) }
    }

    /// Posts a receive, whose fields `fill` sets. When `fill` is called, the vector of the receive is empty.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the queue is full, or the error that `fill` returns. In both cases no receive is posted.
    pub(crate) fn post(&self, fill: impl FnOnce(&mut ReceiveWork) -> Result<(), Errno>) -> Result<(), Errno> {
        self.lock().post(fill)
    }

    /// Takes the oldest receive. If this leaves a shared queue with fewer receives than its limit, the limit event is
    /// raised.
    pub(crate) fn take(&self) -> Option<ReceiveWork> {
        let mut ring = self.lock();
        let work = ring.take()?;
        let is_below = ring.is_below_limit();
        drop(ring);
        if let (true, Some(sharing)) = (is_below, &self.sharing) {
            sharing.events.limit_reached();
        }
        Some(work)
    }

    /// Returns an unused receive, which becomes the next one to take.
    pub(crate) fn give_back(&self, work: ReceiveWork) {
        self.lock().give_back(work);
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.sharing.is_some()
    }

    /// Returns a completed receive, so that its memory can be reused.
    pub(crate) fn recycle(&self, work: ReceiveWork) {
        self.lock().recycle(work);
    }

    /// Removes all receives, the oldest first, and calls `each` for every one. No receive can be posted during this
    /// call, and it raises no limit event.
    pub(crate) fn drain(&self, mut each: impl FnMut(&ReceiveWork)) {
        let mut ring = self.lock();
        while let Some(work) = ring.take() {
            each(&work);
            ring.recycle(work);
        }
    }

    pub(crate) fn max_sge(&self) -> u32 {
        self.max_sge
    }

    pub(crate) fn max_wr(&self) -> u32 {
        self.lock().capacity()
    }

    /// The protection domain of a shared queue; the memory of its receives must belong to this domain.
    pub(crate) fn domain(&self) -> Option<&Arc<Domain>> {
        self.sharing.as_ref().map(|sharing| &sharing.domain)
    }

    pub(crate) fn limit(&self) -> u32 {
        self.lock().limit()
    }

    /// Changes the size of a shared queue, its limit, or both. A limit of zero disarms the event.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the queue contains more receives than the new size, if the size exceeds the device's maximum, if the
    /// limit exceeds the size, or if the queue is not shared. The queue is then unchanged.
    pub(crate) fn change(&self, max_wr: Option<u32>, limit: Option<u32>) -> Result<(), Errno> {
        if self.sharing.is_none() || max_wr.is_some_and(|max_wr| !(1..=MAX_SRQ_WR).contains(&max_wr)) {
            return Err(Errno::INVALID);
        }
        self.lock().change(max_wr, limit)
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        unpoisoned(self.ring.lock())
    }
}
