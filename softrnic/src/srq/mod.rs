//! Receive queues: a queue pair's own, and shared ones.

mod ring;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard};

use self::ring::Ring;
use crate::mem::Piece;
use crate::mem::domain::Domain;
use crate::sys::errno::Errno;
use crate::sys::unpoisoned;
use crate::wire::limits::MAX_SRQ_WR;

/// A receive. Its vector is used again for the next.
#[derive(Debug, Default)]
pub(crate) struct ReceiveWork {
    pub(crate) wr_id: u64,
    pub(crate) pieces: Vec<Piece>,
}

/// Events of a shared receive queue, implemented by the C API. It is called with locks of the NIC held, and so neither blocks nor calls back.
pub(crate) trait ReceiveEvents: Debug + Send + Sync {
    /// Fewer receives are left than the limit that was set (`IBV_EVENT_SRQ_LIMIT_REACHED`); the limit is gone.
    fn limit_reached(&self);
}

/// A queue of receives, first in, first out.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    ring: Mutex<Ring>,
    max_sge: u32,
    sharing: Option<Sharing>,
}

/// What a shared queue has besides.
#[derive(Debug)]
struct Sharing {
    domain: Arc<Domain>,
    events: Box<dyn ReceiveEvents>,
}

impl ReceiveQueue {
    /// Of a queue pair.
    pub(crate) fn new(max_wr: u32, max_sge: u32) -> Self {
        Self { ring: Mutex::new(Ring::new(max_wr)), max_sge, sharing: None }
    }

    /// A shared one.
    pub(crate) fn shared(domain: Arc<Domain>, max_wr: u32, max_sge: u32, events: Box<dyn ReceiveEvents>) -> Self {
        Self { ring: Mutex::new(Ring::new(max_wr)), max_sge, sharing: Some(Sharing { domain, events }) }
    }

    /// Posts a receive, filled in by `fill`, whose vector is empty before.
    ///
    /// # Errors
    ///
    /// `ENOMEM` where the queue is full; or what `fill` gives, and nothing is posted.
    pub(crate) fn post(&self, fill: impl FnOnce(&mut ReceiveWork) -> Result<(), Errno>) -> Result<(), Errno> {
        self.lock().post(fill)
    }

    /// Takes the oldest. Tells of the limit of a shared queue.
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

    /// Gives back what was taken, to be the next that is taken again.
    pub(crate) fn give_back(&self, work: ReceiveWork) {
        self.lock().give_back(work);
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.sharing.is_some()
    }

    /// Gives back what was taken and is done, for its memory.
    pub(crate) fn recycle(&self, work: ReceiveWork) {
        self.lock().recycle(work);
    }

    /// Takes all that are queued, the oldest first: they are flushed, or forgotten. Nothing is posted meanwhile, and no limit is
    /// told of.
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

    /// The domain of a shared queue, in which its memory is looked up.
    pub(crate) fn domain(&self) -> Option<&Arc<Domain>> {
        self.sharing.as_ref().map(|sharing| &sharing.domain)
    }

    pub(crate) fn limit(&self) -> u32 {
        self.lock().limit()
    }

    /// Changes the size of a shared queue, or its limit (zero disarms it), or both.
    ///
    /// # Errors
    ///
    /// `EINVAL`, and nothing is changed: it has more receives, or the device has no queues of this size, or the limit is above the
    /// size, or the queue is not shared.
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
