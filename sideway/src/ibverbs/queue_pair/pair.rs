//! A queue pair of any kind. It has a send queue of that kind, and a receive queue, whose type is the same for all
//! kinds.

use std::sync::Arc;

use super::common::AsQueuePairCore;
use super::{
    BasicSendQueue, Connected, ExtendedSendQueue, GenericSendQueue, ModifyQueuePairError, QueuePair,
    QueuePairAttribute, QueuePairCore, QueuePairType, Service,
};
use crate::error::VerbError;
use crate::ibverbs::device_context::DeviceContext;
use crate::ibverbs::work_request::{HoldsFor, PostRecvGuard, PostSendGuard, ReceiveQueue};

/// A queue pair with a send queue of the kind `S`.
#[derive(Debug)]
pub struct Pair<S> {
    send: S,
    recv: ReceiveQueue,
}

/// A queue pair of the basic verbs, which every device supports; `T` is its [service](Service).
#[doc(alias = "ibv_qp")]
pub type BasicQueuePair<T = Connected> = Pair<BasicSendQueue<T>>;

/// A queue pair of the extended verbs, with which requests are written directly to the device's queue.
#[doc(alias = "ibv_qp_ex")]
pub type ExtendedQueuePair<T = Connected> = Pair<ExtendedSendQueue<T>>;

/// A queue pair of either kind, for programs that run on every device. To hoist the match out of a hot loop, match once
/// on the send queue that [`queues`](Pair::queues) borrows.
pub type GenericQueuePair<T = Connected> = Pair<GenericSendQueue<T>>;

/// A kind of send queue. Only the queues of this crate implement this trait.
pub trait SendQueue: AsQueuePairCore {
    /// The service, which determines the fields of requests.
    type Service: Service;

    /// The batch that [`start_post_send`](Self::start_post_send) returns.
    type Guard<'q>: PostSendGuard<Service = Self::Service> + HoldsFor<'q>
    where
        Self: 'q;

    /// Starts a batch of sends.
    fn start_post_send(&mut self) -> Self::Guard<'_>;
}

impl<S: SendQueue> Pair<S> {
    pub(super) fn new(send: S, recv: ReceiveQueue) -> Self {
        Self { send, recv }
    }

    /// Borrows both queues at once, so that two threads can use them.
    pub fn queues(&mut self) -> (&mut S, &mut ReceiveQueue) {
        (&mut self.send, &mut self.recv)
    }

    /// Splits the pair into its two queues. Each of them keeps the queue pair alive. [`join`](Self::join) reunites
    /// them.
    pub fn split(self) -> (S, ReceiveQueue) {
        (self.send, self.recv)
    }

    /// Reunites the two queues of a [split](Self::split) queue pair. Resetting and [draining](Self::drain) a queue pair
    /// require both queues.
    ///
    /// # Errors
    ///
    /// Returns the two queues if they belong to two queue pairs.
    pub fn join(send: S, recv: ReceiveQueue) -> Result<Self, (S, ReceiveQueue)> {
        let pair = Self { send, recv };
        if pair.is_whole() { Ok(pair) } else { Err(pair.split()) }
    }

    /// Whether both queues belong to one queue pair. Safe code can swap the queues of two pairs through the borrows of
    /// [`queues`](Self::queues), and then they do not.
    pub(super) fn is_whole(&self) -> bool {
        Arc::ptr_eq(self.send.core(), self.recv.core())
    }

    /// `ibv_destroy_qp(qp)` — destroys the queue pair. This method returns an error of the verb, whereas drop only logs
    /// it.
    ///
    /// # Errors
    ///
    /// Returns `EBUSY` if flows or asynchronous events still reference the queue pair, or if another pair has one of
    /// its queues. The queue pair is then destroyed when the last reference is dropped. Otherwise returns the driver's
    /// errno, and the queue pair is leaked.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn close(self) -> Result<(), VerbError> {
        let core = Arc::clone(self.core());
        drop(self);
        core.close()
    }
}

impl<S: SendQueue> QueuePair for Pair<S> {
    type Service = S::Service;
    type Guard<'g>
        = S::Guard<'g>
    where
        S: 'g;

    #[inline]
    fn start_post_send(&mut self) -> S::Guard<'_> {
        self.send.start_post_send()
    }

    #[inline]
    fn start_post_recv(&mut self) -> PostRecvGuard<'_> {
        self.recv.start_post_recv()
    }

    fn modify(&self, attribute: &QueuePairAttribute) -> Result<(), ModifyQueuePairError> {
        if self.is_whole() { self.core().modify(attribute) } else { self.core().modify_part(attribute) }
    }
}

impl<S: SendQueue> AsQueuePairCore for Pair<S> {
    fn core(&self) -> &Arc<QueuePairCore> {
        self.send.core()
    }
}

impl<T: Service> From<BasicQueuePair<T>> for GenericQueuePair<T> {
    fn from(qp: BasicQueuePair<T>) -> Self {
        Self { send: GenericSendQueue::Basic(qp.send), recv: qp.recv }
    }
}

impl<T: Service> From<ExtendedQueuePair<T>> for GenericQueuePair<T> {
    fn from(qp: ExtendedQueuePair<T>) -> Self {
        Self { send: GenericSendQueue::Extended(qp.send), recv: qp.recv }
    }
}

/// A reference to a queue pair, with which the queue pair can be identified, queried and modified. Only the owners of
/// its queues can post requests.
///
/// While the reference exists, dropping the [`Pair`](super::Pair) or its queues does not destroy the queue pair. Posted
/// requests then stay outstanding, and [`Pair::close`](super::Pair::close) returns `EBUSY`. Dropping the last reference
/// destroys the queue pair.
#[derive(Clone, Debug)]
pub struct QueuePairRef {
    queue_pair: Arc<QueuePairCore>,
}

impl QueuePairRef {
    pub(crate) fn new(queue_pair: Arc<QueuePairCore>) -> Self {
        Self { queue_pair }
    }

    /// Whether this references the given queue pair, or the queue pair of the given send queue.
    pub fn is_of(&self, qp: &impl AsQueuePairCore) -> bool {
        Arc::ptr_eq(&self.queue_pair, qp.core())
    }

    /// Returns the transport service.
    pub fn qp_type(&self) -> QueuePairType {
        self.queue_pair.qp_type()
    }

    /// Returns the device.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        self.queue_pair.context()
    }

    pub(crate) fn core(&self) -> &Arc<QueuePairCore> {
        &self.queue_pair
    }
}
