//! Sends of either kind, for programs that run on every device.

use std::sync::Arc;

use super::common::AsQueuePairCore;
use super::pair::SendQueue;
use super::{BasicPostSendGuard, BasicSendQueue, ExtendedPostSendGuard, ExtendedSendQueue, QueuePairCore};
use crate::ibverbs::work_request::{PostSendError, PostSendGuard, SendData, SendOperation, SendSink};

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

impl SendQueue for GenericSendQueue {
    type Guard<'q> = GenericPostSendGuard<'q>;

    #[inline]
    fn start_post_send(&mut self) -> GenericPostSendGuard<'_> {
        match self {
            Self::Basic(queue) => GenericPostSendGuard::Basic(queue.start_post_send()),
            Self::Extended(queue) => GenericPostSendGuard::Extended(queue.start_post_send()),
        }
    }
}

impl AsQueuePairCore for GenericSendQueue {
    fn core(&self) -> &Arc<QueuePairCore> {
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
