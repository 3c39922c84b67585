//! A queue pair of either kind, for programs that run on every device.

use std::sync::Arc;

use super::common::AsQueuePairCore;
use super::{
    BasicPostSendGuard, BasicQueuePair, BasicSendQueue, ExtendedPostSendGuard, ExtendedQueuePair, ExtendedSendQueue,
    QueuePair, QueuePairCore,
};
use crate::error::VerbError;
use crate::ibverbs::work_request::{
    PostRecvGuard, PostSendError, PostSendGuard, ReceiveQueue, SendData, SendOperation, SendSink,
};

/// A queue pair of either kind. To hoist the choice out of a hot loop, match on it once.
#[derive(Debug)]
pub enum GenericQueuePair {
    /// Of the basic verbs.
    Basic(BasicQueuePair),
    /// Of the extended verbs.
    Extended(ExtendedQueuePair),
}

/// The send queue of a queue pair of either kind.
#[derive(Debug)]
pub enum GenericSendQueue {
    /// Of the basic verbs.
    Basic(BasicSendQueue),
    /// Of the extended verbs.
    Extended(ExtendedSendQueue),
}

/// A batch of sends under construction. Dropping it takes the batch back.
#[derive(Debug)]
pub enum GenericPostSendGuard<'q> {
    /// Of a basic queue pair.
    Basic(BasicPostSendGuard<'q>),
    /// Of an extended queue pair.
    Extended(ExtendedPostSendGuard<'q>),
}

impl GenericQueuePair {
    /// The two queues, each of which keeps the queue pair alive.
    pub fn split(self) -> (GenericSendQueue, ReceiveQueue) {
        match self {
            Self::Basic(qp) => {
                let (send, recv) = qp.split();
                (GenericSendQueue::Basic(send), recv)
            }
            Self::Extended(qp) => {
                let (send, recv) = qp.split();
                (GenericSendQueue::Extended(send), recv)
            }
        }
    }

    /// `ibv_destroy_qp(qp)` — destroys the queue pair and reports, where dropping only logs.
    ///
    /// # Errors
    ///
    /// The driver's errno; the queue pair is leaked then.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn close(self) -> Result<(), VerbError> {
        match self {
            Self::Basic(qp) => qp.close(),
            Self::Extended(qp) => qp.close(),
        }
    }
}

impl From<BasicQueuePair> for GenericQueuePair {
    fn from(qp: BasicQueuePair) -> Self {
        Self::Basic(qp)
    }
}

impl From<ExtendedQueuePair> for GenericQueuePair {
    fn from(qp: ExtendedQueuePair) -> Self {
        Self::Extended(qp)
    }
}

impl QueuePair for GenericQueuePair {
    type Guard<'g> = GenericPostSendGuard<'g>;

    #[inline]
    fn start_post_send(&mut self) -> GenericPostSendGuard<'_> {
        match self {
            Self::Basic(qp) => GenericPostSendGuard::Basic(qp.start_post_send()),
            Self::Extended(qp) => GenericPostSendGuard::Extended(qp.start_post_send()),
        }
    }

    #[inline]
    fn start_post_recv(&mut self) -> PostRecvGuard<'_> {
        match self {
            Self::Basic(qp) => qp.start_post_recv(),
            Self::Extended(qp) => qp.start_post_recv(),
        }
    }
}

impl AsQueuePairCore for GenericQueuePair {
    fn core(&self) -> &Arc<QueuePairCore> {
        match self {
            Self::Basic(qp) => qp.core(),
            Self::Extended(qp) => qp.core(),
        }
    }
}

impl GenericSendQueue {
    /// Begins a batch of sends.
    #[inline]
    pub fn start_post_send(&mut self) -> GenericPostSendGuard<'_> {
        match self {
            Self::Basic(queue) => GenericPostSendGuard::Basic(queue.start_post_send()),
            Self::Extended(queue) => GenericPostSendGuard::Extended(queue.start_post_send()),
        }
    }

    pub(super) fn core(&self) -> &Arc<QueuePairCore> {
        match self {
            Self::Basic(queue) => queue.core(),
            Self::Extended(queue) => queue.core(),
        }
    }
}

impl SendSink for GenericPostSendGuard<'_> {
    #[inline]
    unsafe fn emit<O: SendOperation, D: SendData>(&mut self, wr_id: u64, flags: u32, operation: O, data: D) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Basic(guard) => guard.emit(wr_id, flags, operation, data),
                Self::Extended(guard) => guard.emit(wr_id, flags, operation, data),
            }
        }
    }
}

impl PostSendGuard for GenericPostSendGuard<'_> {
    #[inline]
    fn post(self) -> Result<(), PostSendError> {
        match self {
            Self::Basic(guard) => guard.post(),
            Self::Extended(guard) => guard.post(),
        }
    }
}
