//! A send queue of either kind, for programs that run on every device.

use std::sync::Arc;

use super::common::AsQueuePairCore;
use super::pair::SendQueue;
use super::{
    BasicPostSendGuard, BasicSendQueue, Connected, ExtendedPostSendGuard, ExtendedSendQueue, QueuePairCore, Service,
};
use crate::ibverbs::work_request::{HoldsFor, PostSendError, PostSendGuard, SendData, SendOperation, SendSink};

/// The send queue of a queue pair of either kind.
#[derive(Debug)]
pub enum GenericSendQueue<T = Connected> {
    /// A send queue of the basic verbs.
    Basic(BasicSendQueue<T>),
    /// A send queue of the extended verbs.
    Extended(ExtendedSendQueue<T>),
}

/// A batch of sends under construction. Dropping it discards the batch.
#[derive(Debug)]
pub enum GenericPostSendGuard<'q, T = Connected> {
    /// A batch of a basic queue pair.
    Basic(BasicPostSendGuard<'q, T>),
    /// A batch of an extended queue pair.
    Extended(ExtendedPostSendGuard<'q, T>),
}

impl<T: Service> SendQueue for GenericSendQueue<T> {
    type Service = T;
    type Guard<'q> = GenericPostSendGuard<'q, T>;

    #[inline]
    fn start_post_send(&mut self) -> GenericPostSendGuard<'_, T> {
        match self {
            Self::Basic(queue) => GenericPostSendGuard::Basic(queue.start_post_send()),
            Self::Extended(queue) => GenericPostSendGuard::Extended(queue.start_post_send()),
        }
    }
}

impl<T: Service> AsQueuePairCore for GenericSendQueue<T> {
    fn core(&self) -> &Arc<QueuePairCore> {
        match self {
            Self::Basic(queue) => queue.core(),
            Self::Extended(queue) => queue.core(),
        }
    }
}

// SAFETY: both guards that this enum can contain meet the contract.
unsafe impl<'q, T: Service> HoldsFor<'q> for GenericPostSendGuard<'q, T> {}

impl<T: Service> SendSink for GenericPostSendGuard<'_, T> {
    #[inline]
    unsafe fn emit<O: SendOperation, D: SendData>(&mut self, wr_id: u64, flags: u32, operation: O, data: D) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe {
            match self {
                Self::Basic(guard) => guard.emit(wr_id, flags, operation, data),
                Self::Extended(guard) => guard.emit(wr_id, flags, operation, data),
            }
        }
    }
}

impl<T: Service> PostSendGuard for GenericPostSendGuard<'_, T> {
    type Service = T;

    #[inline]
    fn post(self) -> Result<(), PostSendError> {
        match self {
            Self::Basic(guard) => guard.post(),
            Self::Extended(guard) => guard.post(),
        }
    }
}
