//! A queue pair of any kind: a send queue of that kind, and a receive queue, which all kinds share.

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

/// A queue pair of the basic verbs, which every device has; `T` is its [service](Service).
#[doc(alias = "ibv_qp")]
pub type BasicQueuePair<T = Connected> = Pair<BasicSendQueue<T>>;

/// A queue pair of the extended verbs: requests are written straight into the device's queue.
#[doc(alias = "ibv_qp_ex")]
pub type ExtendedQueuePair<T = Connected> = Pair<ExtendedSendQueue<T>>;

/// A queue pair of either kind, for programs that run on every device. To hoist the choice out of a hot loop, match once
/// on the send queue that [`queues`](Pair::queues) lends.
pub type GenericQueuePair<T = Connected> = Pair<GenericSendQueue<T>>;

/// A kind of send queue; only this crate's queues are one.
pub trait SendQueue: AsQueuePairCore {
    /// What requests of the queue pair look like.
    type Service: Service;

    /// The batch that [`start_post_send`](Self::start_post_send) begins.
    type Guard<'q>: PostSendGuard<Service = Self::Service> + HoldsFor<'q>
    where
        Self: 'q;

    /// Begins a batch of sends.
    fn start_post_send(&mut self) -> Self::Guard<'_>;
}

impl<S: SendQueue> Pair<S> {
    pub(super) fn new(send: S, recv: ReceiveQueue) -> Self {
        Self { send, recv }
    }

    /// Both queues at once, each for a thread of its own.
    pub fn queues(&mut self) -> (&mut S, &mut ReceiveQueue) {
        (&mut self.send, &mut self.recv)
    }

    /// The two queues, each of which keeps the queue pair alive. [`join`](Self::join) puts them together again.
    pub fn split(self) -> (S, ReceiveQueue) {
        (self.send, self.recv)
    }

    /// The queue pair of two queues that were [split](Self::split): to reset it or to [drain](Self::drain) it takes both.
    ///
    /// # Errors
    ///
    /// The queues, where they are of two queue pairs.
    pub fn join(send: S, recv: ReceiveQueue) -> Result<Self, (S, ReceiveQueue)> {
        let pair = Self { send, recv };
        if pair.is_whole() { Ok(pair) } else { Err(pair.split()) }
    }

    /// Whether both queues are of one queue pair: safe code can swap what [`queues`](Self::queues) lends.
    pub(super) fn is_whole(&self) -> bool {
        Arc::ptr_eq(self.send.core(), self.recv.core())
    }

    /// `ibv_destroy_qp(qp)` — destroys the queue pair and reports, where dropping only logs.
    ///
    /// # Errors
    ///
    /// `EBUSY` where flows or asynchronous events hold the queue pair, or another pair has one of its queues: it goes with the
    /// last of them; else the driver's errno, and the queue pair is leaked.
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

/// A hold on a queue pair: it can be named, asked and modified, not posted to, which is for the owners of its queues.
///
/// It keeps the queue pair's C object alive: while it is there, dropping the [`Pair`](super::Pair) or its queues does not destroy the
/// queue pair, and requests that were posted stay outstanding. [`Pair::close`](super::Pair::close) tells. Where it is the last to hold
/// the object, dropping it destroys the queue pair.
#[derive(Clone, Debug)]
pub struct QueuePairRef {
    queue_pair: Arc<QueuePairCore>,
}

impl QueuePairRef {
    pub(crate) fn new(queue_pair: Arc<QueuePairCore>) -> Self {
        Self { queue_pair }
    }

    /// Whether this is that queue pair, or the one that the send queue is of.
    pub fn is_of(&self, qp: &impl AsQueuePairCore) -> bool {
        Arc::ptr_eq(&self.queue_pair, qp.core())
    }

    /// The transport service.
    pub fn qp_type(&self) -> QueuePairType {
        self.queue_pair.qp_type()
    }

    /// The device that the queue pair is of.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        self.queue_pair.context()
    }

    pub(crate) fn core(&self) -> &Arc<QueuePairCore> {
        &self.queue_pair
    }
}
