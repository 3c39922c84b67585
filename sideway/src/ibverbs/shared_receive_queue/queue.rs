//! A shared receive queue: posting to it, changing it, asking it.

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys::{ibv_recv_wr, ibv_srq};

use super::tag_matching::TagOperations;
use super::{
    PostTagOperationsGuard, SharedReceiveQueueAttribute, SharedReceiveQueueAttributeMask, SharedReceiveQueueCore,
    SharedReceiveQueueType, Tag,
};
use crate::error::VerbError;
use crate::ibverbs::device_context::DeviceContext;
use crate::ibverbs::work_request::{PostRecvGuard, Requests};

/// A shared receive queue, which one thread at a time posts to.
#[doc(alias = "ibv_srq")]
#[derive(Debug)]
pub struct SharedReceiveQueue {
    srq: *mut ibv_srq,
    max_wr: u32,
    max_sge: u32,
    requests: Requests<ibv_recv_wr>,
    tags: TagOperations,
    core: Arc<SharedReceiveQueueCore>,
}

// SAFETY: the queue owns its requests; posting to a shared receive queue is allowed from any thread, and `&mut` keeps it to
// one.
unsafe impl Send for SharedReceiveQueue {}
// SAFETY: a shared reference gives access to the core alone.
unsafe impl Sync for SharedReceiveQueue {}

impl SharedReceiveQueue {
    /// For batches of up to `max_wr` receives with up to `max_sge` entries each.
    pub(super) fn new(
        verb: &'static str,
        core: Arc<SharedReceiveQueueCore>,
        max_wr: u32,
        max_sge: u32,
        tags: TagOperations,
    ) -> Result<Self, VerbError> {
        let requests = Requests::new(verb, max_wr, max_sge)?;
        Ok(Self { srq: core.raw(), max_wr, max_sge, requests, tags, core })
    }

    /// Begins a batch of receives.
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline]
    pub fn start_post_recv(&mut self) -> PostRecvGuard<'_, *mut ibv_srq> {
        // SAFETY: the shared receive queue is live as long as the core, and the queue is borrowed by the guard; the builder
        // has seen to it that the driver has the function.
        unsafe { PostRecvGuard::new(self.srq, &mut self.requests) }
    }

    /// Begins a batch of operations on the list of tags. A queue without tag matching refuses each.
    #[doc(alias = "ibv_post_srq_ops")]
    #[inline]
    pub fn start_post_ops(&mut self) -> PostTagOperationsGuard<'_> {
        // SAFETY: the shared receive queue is live as long as the core, and the queue is borrowed by the guard.
        unsafe { self.tags.batch(self.srq) }
    }

    /// The tag that the operation at place `index` of the last batch of [`start_post_ops`](Self::start_post_ops) has added;
    /// `None` where that operation was another, or was not posted. The next batch forgets it.
    pub fn posted_tag(&self, index: usize) -> Option<Tag> {
        self.tags.posted_tag(index)
    }

    /// `ibv_modify_srq(srq, attr, attr_mask)` — sets the limit, or resizes the queue, or both.
    ///
    /// After a resize, batches of up to as many receives as were asked for can be posted; those that are outstanding stay.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: a limit above the queue's size, more receives than the device has, fewer than are outstanding, or a device
    ///   that does not resize queues (`DeviceCapabilityFlags::SharedReceiveQueueResize`).
    /// - `ENOMEM`: out of resources, of the device or of this library, as the error says then. Nothing was modified.
    /// - `EOPNOTSUPP`, `ENOSYS`: the driver has not this verb.
    ///
    /// # References
    ///
    /// [ibv_modify_srq(3)](https://man7.org/linux/man-pages/man3/ibv_modify_srq.3.html)
    #[doc(alias = "ibv_modify_srq")]
    pub fn modify(&mut self, attribute: &SharedReceiveQueueAttribute) -> Result<(), VerbError> {
        if !attribute.mask().contains(SharedReceiveQueueAttributeMask::MaxWr) {
            return self.core.modify(attribute);
        }
        self.core.check_size(attribute)?;
        // Before the queue is resized: a failure leaves everything as it was.
        let requests = Requests::new("ibv_modify_srq", attribute.max_wr(), self.max_sge)?;
        self.core.modify(attribute)?;
        self.requests = requests;
        self.max_wr = attribute.max_wr();
        Ok(())
    }

    /// `ibv_modify_srq(srq, {srq_limit}, IBV_SRQ_LIMIT)` — asks for one event `IBV_EVENT_SRQ_LIMIT_REACHED` when fewer than
    /// `limit` receives are left; 0 takes the wish back. After the event, ask again.
    ///
    /// On an empty queue many devices raise the event at once: post receives first.
    ///
    /// # Errors
    ///
    /// `EINVAL` where the limit is above the queue's size; else the driver's errno.
    ///
    /// # References
    ///
    /// [ibv_modify_srq(3)](https://man7.org/linux/man-pages/man3/ibv_modify_srq.3.html)
    pub fn arm_limit(&self, limit: u32) -> Result<(), VerbError> {
        self.core.modify(SharedReceiveQueueAttribute::new().setup_limit(limit))
    }

    /// `ibv_query_srq(srq, attr)` — the size of the queue and its limit, as the driver has them at the moment.
    ///
    /// # Errors
    ///
    /// The driver's errno.
    ///
    /// # References
    ///
    /// [ibv_query_srq(3)](https://man7.org/linux/man-pages/man3/ibv_query_srq.3.html)
    #[doc(alias = "ibv_query_srq")]
    pub fn query(&self) -> Result<SharedReceiveQueueAttribute, VerbError> {
        self.core.query()
    }

    /// `ibv_get_srq_num(srq, srq_num)` — the number by which senders on XRC queue pairs name the queue, 24 bits.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` where the driver has not this verb, or the queue no number.
    ///
    /// # References
    ///
    /// [ibv_get_srq_num(3)](https://man7.org/linux/man-pages/man3/ibv_get_srq_num.3.html)
    #[doc(alias = "ibv_get_srq_num")]
    pub fn srq_number(&self) -> Result<u32, VerbError> {
        self.core.srq_number()
    }

    /// Receives that a batch can have: as many as the device made the queue for, or as the last resize asked for.
    pub fn max_wr(&self) -> u32 {
        self.max_wr
    }

    /// Entries that a receive's scatter list can have: as many as the device made the queue for.
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Who takes receives from the queue.
    pub fn srq_type(&self) -> SharedReceiveQueueType {
        self.core.srq_type()
    }

    /// The number given with [`setup_srq_context`](super::SharedReceiveQueueBuilder::setup_srq_context).
    pub fn srq_context(&self) -> usize {
        self.core.user_context()
    }

    /// The device that the queue is of.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        self.core.context()
    }

    /// `ibv_destroy_srq(srq)` — destroys the queue and reports, where dropping only logs. Where queue pairs or events hold
    /// it, it lives on, and goes with the last of them.
    ///
    /// A queue that was made with a completion queue (XRC, tag matching) goes with that, and not before, because that may be being
    /// polled, and drivers look it up from one step of a poll to the next: its receives stay the device's until then.
    ///
    /// # Errors
    ///
    /// `EBUSY` where it is held, by its completion queue too; else the driver's errno, and the queue is leaked.
    ///
    /// # References
    ///
    /// [ibv_destroy_srq(3)](https://man7.org/linux/man-pages/man3/ibv_create_srq.3.html)
    #[doc(alias = "ibv_destroy_srq")]
    pub fn close(self) -> Result<(), VerbError> {
        self.core.close()
    }

    /// The C object.
    ///
    /// # Safety
    ///
    /// It is used only while `self` lives, not destroyed, and not posted to while a guard is out.
    pub unsafe fn srq(&self) -> NonNull<ibv_srq> {
        self.core.as_non_null()
    }

    pub(crate) fn core(&self) -> &Arc<SharedReceiveQueueCore> {
        &self.core
    }
}

/// A hold on a shared receive queue: it can be asked and its limit armed anew, not posted to, which is for its owner. It keeps
/// the queue's C object alive; [`SharedReceiveQueue::close`] tells. Where it is the last to hold the object, dropping it
/// destroys the queue.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueueRef {
    queue: Arc<SharedReceiveQueueCore>,
}

impl SharedReceiveQueueRef {
    pub(crate) fn new(queue: Arc<SharedReceiveQueueCore>) -> Self {
        Self { queue }
    }

    /// Whether this is that queue.
    pub fn is_of(&self, queue: &SharedReceiveQueue) -> bool {
        Arc::ptr_eq(&self.queue, queue.core())
    }

    /// The number given with [`setup_srq_context`](super::SharedReceiveQueueBuilder::setup_srq_context).
    pub fn srq_context(&self) -> usize {
        self.queue.user_context()
    }

    /// `ibv_query_srq(srq, srq_attr)` — see [`SharedReceiveQueue::query`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn query(&self) -> Result<SharedReceiveQueueAttribute, VerbError> {
        self.queue.query()
    }

    /// `ibv_modify_srq(srq, {limit}, IBV_SRQ_LIMIT)` — see [`SharedReceiveQueue::arm_limit`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn arm_limit(&self, limit: u32) -> Result<(), VerbError> {
        self.queue.modify(SharedReceiveQueueAttribute::new().setup_limit(limit))
    }

    /// The device that the queue is of.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        self.queue.context()
    }
}
