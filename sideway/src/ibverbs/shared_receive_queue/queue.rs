//! A shared receive queue: posting, modifying and querying.

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

/// A shared receive queue. One thread at a time can post to it.
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

// SAFETY: the queue owns its requests. Any thread may post to a shared receive queue, and `&mut` permits only one
// thread at a time.
unsafe impl Send for SharedReceiveQueue {}
// SAFETY: a shared reference only gives access to the core.
unsafe impl Sync for SharedReceiveQueue {}

impl SharedReceiveQueue {
    /// Creates a queue for batches of up to `max_wr` receives with up to `max_sge` entries each.
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

    /// Starts a batch of receives.
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline]
    pub fn start_post_recv(&mut self) -> PostRecvGuard<'_, *mut ibv_srq> {
        // SAFETY: the shared receive queue is live as long as the core, and the guard borrows the queue. The builder
        // has checked that the driver has the function.
        unsafe { PostRecvGuard::new(self.srq, &mut self.requests) }
    }

    /// Starts a batch of operations on the list of tags. A queue without tag matching rejects every operation.
    #[doc(alias = "ibv_post_srq_ops")]
    #[inline]
    pub fn start_post_ops(&mut self) -> PostTagOperationsGuard<'_> {
        // SAFETY: the shared receive queue is live as long as the core, and the guard borrows the queue.
        unsafe { self.tags.batch(self.srq) }
    }

    /// Returns the tag that operation `index` of the last batch of [`start_post_ops`](Self::start_post_ops) added.
    /// Returns `None` if that operation was of another kind or was not posted. The next batch replaces these results.
    pub fn posted_tag(&self, index: usize) -> Option<Tag> {
        self.tags.posted_tag(index)
    }

    /// `ibv_modify_srq(srq, attr, attr_mask)` — sets the limit, resizes the queue, or both.
    ///
    /// After a resize, a batch may have as many receives as the new size. Outstanding receives remain in the queue.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the limit exceeds the queue's size, or the new size exceeds the device's limit or is less than the
    ///   number of outstanding receives. Or the device cannot resize queues
    ///   (`DeviceCapabilityFlags::SharedReceiveQueueResize`).
    /// - `ENOMEM`: the device or this crate is out of memory; the error states which. The queue was not modified.
    /// - `EOPNOTSUPP`, `ENOSYS`: the driver does not have this verb.
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
        // The requests are allocated before the resize, so that a failed allocation changes nothing.
        let requests = Requests::new("ibv_modify_srq", attribute.max_wr(), self.max_sge)?;
        self.core.modify(attribute)?;
        self.requests = requests;
        self.max_wr = attribute.max_wr();
        Ok(())
    }

    /// `ibv_modify_srq(srq, {srq_limit}, IBV_SRQ_LIMIT)` — requests one event `IBV_EVENT_SRQ_LIMIT_REACHED`, which the
    /// device raises when fewer than `limit` receives are left. The limit 0 cancels the request. Arm the limit again
    /// after each event.
    ///
    /// Post receives first, because many devices raise the event immediately if the queue is empty.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the limit exceeds the queue's size; otherwise the driver's errno.
    ///
    /// # References
    ///
    /// [ibv_modify_srq(3)](https://man7.org/linux/man-pages/man3/ibv_modify_srq.3.html)
    pub fn arm_limit(&self, limit: u32) -> Result<(), VerbError> {
        self.core.modify(SharedReceiveQueueAttribute::new().setup_limit(limit))
    }

    /// `ibv_query_srq(srq, attr)` — returns the driver's current size and limit of the queue.
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

    /// `ibv_get_srq_num(srq, srq_num)` — returns the number by which senders on XRC queue pairs name the queue, 24
    /// bits.
    ///
    /// # Errors
    ///
    /// Returns `EOPNOTSUPP` if the driver does not have this verb, or if the queue has no number.
    ///
    /// # References
    ///
    /// [ibv_get_srq_num(3)](https://man7.org/linux/man-pages/man3/ibv_get_srq_num.3.html)
    #[doc(alias = "ibv_get_srq_num")]
    pub fn srq_number(&self) -> Result<u32, VerbError> {
        self.core.srq_number()
    }

    /// Returns the maximum number of receives in a batch. This is the capacity that the device chose when the queue was
    /// built, or the size that the last resize requested.
    pub fn max_wr(&self) -> u32 {
        self.max_wr
    }

    /// Returns the maximum number of entries of a receive's scatter list, as chosen by the device.
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Returns the type of the queue.
    pub fn srq_type(&self) -> SharedReceiveQueueType {
        self.core.srq_type()
    }

    /// Returns the number set with [`setup_srq_context`](super::SharedReceiveQueueBuilder::setup_srq_context).
    pub fn srq_context(&self) -> usize {
        self.core.user_context()
    }

    /// Returns the queue's device.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        self.core.context()
    }

    /// `ibv_destroy_srq(srq)` — destroys the queue. This method returns an error of the verb, whereas drop only logs
    /// it. If queue pairs or events still reference the queue, the last of them destroys it.
    ///
    /// A queue that was built with a completion queue (XRC, tag matching) is destroyed together with the completion
    /// queue, because drivers look up the shared receive queue between two steps of a poll. Until then, the device may
    /// use the receives of the queue.
    ///
    /// # Errors
    ///
    /// Returns `EBUSY` if other objects, including its completion queue, still reference the queue. Otherwise returns
    /// the driver's errno, and the queue is leaked.
    ///
    /// # References
    ///
    /// [ibv_destroy_srq(3)](https://man7.org/linux/man-pages/man3/ibv_create_srq.3.html)
    #[doc(alias = "ibv_destroy_srq")]
    pub fn close(self) -> Result<(), VerbError> {
        self.core.close()
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// Use the object only while `self` lives. Do not destroy it, and do not post to it while a guard exists.
    pub unsafe fn srq(&self) -> NonNull<ibv_srq> {
        self.core.as_non_null()
    }

    pub(crate) fn core(&self) -> &Arc<SharedReceiveQueueCore> {
        &self.core
    }
}

/// A reference to a shared receive queue, with which the queue can be queried and its limit be armed. Only the owner
/// can post to the queue. While the reference exists, it keeps the queue's C object alive, and
/// [`SharedReceiveQueue::close`] returns `EBUSY`. Dropping the last reference destroys the queue.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueueRef {
    queue: Arc<SharedReceiveQueueCore>,
}

impl SharedReceiveQueueRef {
    pub(crate) fn new(queue: Arc<SharedReceiveQueueCore>) -> Self {
        Self { queue }
    }

    /// Whether this references the given queue.
    pub fn is_of(&self, queue: &SharedReceiveQueue) -> bool {
        Arc::ptr_eq(&self.queue, queue.core())
    }

    /// Returns the number set with [`setup_srq_context`](super::SharedReceiveQueueBuilder::setup_srq_context).
    pub fn srq_context(&self) -> usize {
        self.queue.user_context()
    }

    /// `ibv_query_srq(srq, srq_attr)` — see [`SharedReceiveQueue::query`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`SharedReceiveQueue::query`].
    pub fn query(&self) -> Result<SharedReceiveQueueAttribute, VerbError> {
        self.queue.query()
    }

    /// `ibv_modify_srq(srq, {limit}, IBV_SRQ_LIMIT)` — see [`SharedReceiveQueue::arm_limit`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`SharedReceiveQueue::arm_limit`].
    pub fn arm_limit(&self, limit: u32) -> Result<(), VerbError> {
        self.queue.modify(SharedReceiveQueueAttribute::new().setup_limit(limit))
    }

    /// Returns the queue's device.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        self.queue.context()
    }
}
