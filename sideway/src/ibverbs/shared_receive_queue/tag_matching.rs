//! Tag matching: operations on the list of tags. The device uses this list to select the receive for a message.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_ops_flags, ibv_ops_wr, ibv_ops_wr_opcode, ibv_sge, ibv_srq};

use crate::error::VerbError;
use crate::ffi::Sealed;
use crate::ibverbs::memory_region::LocalKey;
use crate::ibverbs::work_request::{
    Batch, PostError, RefusalReason, Requests, ScatterGatherEntry, SetScatterGatherEntry,
};

const VERB: &str = "ibv_post_srq_ops";

bitflags::bitflags! {
    /// `enum ibv_ops_flags`: how an operation on the list of tags is processed.
    #[doc(alias = "ibv_ops_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct TagMatchingOperationFlags: u32 {
        /// The completion of the operation is reported on the shared receive queue's completion queue. A failure is
        /// always reported, even without this flag.
        const Signaled = ibv_ops_flags::IBV_OPS_SIGNALED.0;
        /// The operation also passes the number of processed unexpected messages to the device; see
        /// [`setup_unexpected_count`](TagMatchingOperationHandle::setup_unexpected_count).
        const Synchronize = ibv_ops_flags::IBV_OPS_TM_SYNC.0;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

/// A tag in the list of one queue. It is used to delete the tag from the list.
///
/// Once the completion of a message that matched the tag was polled, or the tag was deleted, the driver may reuse the
/// list entry of the tag. So the program must delete each tag at most once, and must not delete a tag that was matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    handle: u32,
    queue: u64,
}

/// The operations of a queue, and how many of the last batch were posted.
#[derive(Debug)]
pub(super) struct TagOperations {
    requests: Requests<ibv_ops_wr>,
    posted: usize,
    /// A number that identifies the queue, so that a tag of another queue can be rejected. Drivers use a tag as an
    /// index without a check.
    queue: u64,
}

impl TagOperations {
    /// Allocates batches of up to `max_ops` operations with up to `max_sge` entries each.
    pub(super) fn new(verb: &'static str, max_ops: u32, max_sge: u32) -> Result<Self, VerbError> {
        Ok(Self { requests: Requests::new(verb, max_ops, max_sge)?, posted: 0, queue: next_number() })
    }

    /// Creates the value for a queue without tag matching, which refuses every operation.
    pub(super) fn none(verb: &'static str) -> Result<Self, VerbError> {
        const REASON: RefusalReason = RefusalReason::Invalid(
            "the queue has no tag matching; build it with SharedReceiveQueueBuilder::setup_tag_matching and build_ex",
        );
        Ok(Self { requests: Requests::refusing(verb, REASON)?, posted: 0, queue: next_number() })
    }

    /// Starts a batch.
    ///
    /// # Safety
    ///
    /// `srq` is live while `self` is borrowed, and is the queue of these operations.
    #[inline]
    pub(super) unsafe fn batch(&mut self, srq: *mut ibv_srq) -> PostTagOperationsGuard<'_> {
        self.posted = 0;
        PostTagOperationsGuard { srq, queue: self.queue, batch: self.requests.batch(), posted: &mut self.posted }
    }

    pub(super) fn posted_tag(&self, index: usize) -> Option<Tag> {
        let request = self.requests.get(index).filter(|_| index < self.posted)?;
        let is_add = request.opcode == ibv_ops_wr_opcode::IBV_WR_TAG_ADD;
        is_add.then_some(Tag { handle: request.tm.handle, queue: self.queue })
    }
}

fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A batch of operations under construction. Dropping it discards the batch.
#[derive(Debug)]
pub struct PostTagOperationsGuard<'q> {
    srq: *mut ibv_srq,
    queue: u64,
    batch: Batch<'q, ibv_ops_wr>,
    posted: &'q mut usize,
}

impl<'q> PostTagOperationsGuard<'q> {
    /// Starts an operation. The completion of the operation itself contains `wr_id`. It is reported if `flags` request
    /// it or if the operation fails.
    #[inline]
    pub fn construct_op(&mut self, wr_id: u64, flags: TagMatchingOperationFlags) -> TagMatchingOperationHandle<'_, 'q> {
        let queue = self.queue;
        TagMatchingOperationHandle { batch: &mut self.batch, queue, wr_id, flags, unexpected_count: 0 }
    }

    /// `ibv_post_srq_ops(srq, wr, bad_wr)` — posts the batch. Posting an empty batch does nothing.
    ///
    /// After this call, [`SharedReceiveQueue::posted_tag`](super::SharedReceiveQueue::posted_tag) returns the added
    /// tags. If an operation failed, it returns the tags that the operations before it added.
    ///
    /// # Errors
    ///
    /// [`PostError`] names the operation at fault, and the number of operations posted before it. The errno is `ENOMEM`
    /// if the list or the queue of operations is full.
    ///
    /// # References
    ///
    /// [ibv_post_srq_ops(3)](https://man7.org/linux/man-pages/man3/ibv_post_srq_ops.3.html)
    #[doc(alias = "ibv_post_srq_ops")]
    pub fn post(self) -> Result<(), PostError> {
        let Self { srq, batch, posted, .. } = self;
        let all = batch.len();
        // SAFETY: the queue is live while its operations are borrowed (`TagOperations::batch`), and the batch's list of
        // operations is valid during the call.
        let result = batch.post(VERB, |first, bad| unsafe { sys::ibv_post_srq_ops(srq, first, bad) });
        *posted = match &result {
            Ok(()) => all,
            // If the driver does not report the number, no tag is known to be valid.
            Err(error) => error.posted().unwrap_or(0),
        };
        result
    }
}

/// An operation whose kind must be set next. Dropping the handle adds nothing to the batch.
#[must_use = "an operation without its kind is not posted"]
pub struct TagMatchingOperationHandle<'g, 'q> {
    batch: &'g mut Batch<'q, ibv_ops_wr>,
    queue: u64,
    wr_id: u64,
    flags: TagMatchingOperationFlags,
    unexpected_count: u32,
}

impl<'g, 'q> TagMatchingOperationHandle<'g, 'q> {
    /// Sets the number of unexpected messages (those that matched no tag) processed so far. The device reads this
    /// number if the operation has [`TagMatchingOperationFlags::Synchronize`] or is itself a synchronization.
    #[inline]
    pub fn setup_unexpected_count(mut self, unexpected_count: u32) -> Self {
        self.unexpected_count = unexpected_count;
        self
    }

    /// Adds a tag, which matches a message whose tag, masked with `mask`, equals `tag`. The next step sets the buffer
    /// for the data of that message. The completion of the message contains `recv_wr_id`. Both `tag` and `mask` are in
    /// host byte order.
    #[inline]
    pub fn setup_add(self, recv_wr_id: u64, tag: u64, mask: u64) -> TagBufferHandle<'g, 'q> {
        TagBufferHandle { operation: self, recv_wr_id, tag, mask }
    }

    /// Deletes a tag. If a message has already matched the tag, the operation fails: either its completion has the
    /// status [`TagMatchingError`](crate::ibverbs::completion::WorkCompletionStatus::TagMatchingError), or posting
    /// fails. The completion is always reported, as with [`TagMatchingOperationFlags::Signaled`], because without a
    /// completion, a driver would not free the tag's list entry.
    ///
    /// # Safety
    ///
    /// - The completion of a message that matched the tag (`recv_wr_id`) has not been polled.
    /// - No operation that was posted earlier and no other operation of this batch deletes the tag.
    ///
    /// If the tag's list entry is already free or was reused, the driver frees the entry twice. Later the driver
    /// assigns one entry to two tags and confuses their completions. The program would then free memory to which the
    /// device still writes.
    #[inline]
    pub unsafe fn setup_delete(mut self, tag: Tag) {
        if tag.queue != self.queue {
            // The tag is checked only if the batch accepts the operation, because a queue without tag matching rejects
            // all operations.
            if self.batch.reserve(self.wr_id).is_some() {
                self.batch
                    .refuse(self.wr_id, RefusalReason::Invalid("the tag belongs to another shared receive queue"));
            }
            return;
        }
        self.flags |= TagMatchingOperationFlags::Signaled;
        self.write(ibv_ops_wr_opcode::IBV_WR_TAG_DEL, tag.handle, |_| ());
    }

    /// Only passes the number of processed unexpected messages to the device, and changes no tag.
    #[inline]
    pub fn setup_synchronize(self) {
        self.write(ibv_ops_wr_opcode::IBV_WR_TAG_SYNC, 0, |_| ());
    }

    /// Adds the operation to the batch. `rest` writes its remaining fields.
    #[inline]
    fn write(self, opcode: ibv_ops_wr_opcode, handle: u32, rest: impl FnOnce(*mut ibv_ops_wr)) {
        let Some(wr) = self.batch.reserve(self.wr_id) else { return };
        // SAFETY: the operation exists, and the batch owns it.
        unsafe {
            (*wr).wr_id = self.wr_id;
            (*wr).opcode = opcode;
            (*wr).flags = self.flags.bits() as c_int;
            (*wr).tm.unexpected_cnt = self.unexpected_count;
            (*wr).tm.handle = handle;
        }
        rest(wr);
        self.batch.accept();
    }
}

impl fmt::Debug for TagMatchingOperationHandle<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TagMatchingOperationHandle")
            .field("wr_id", &self.wr_id)
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

/// A tag whose buffer must be set next. Setting the buffer adds the operation to the batch. Dropping the handle adds
/// nothing to the batch.
///
/// The device uses the buffer longer than the memory of other requests. The program may reuse the buffer after one of
/// three events: the completion (`recv_wr_id`) of a message that matched the tag was polled, the deletion of the tag
/// has completed successfully, or the shared receive queue was destroyed. The driver also writes to the buffer, while
/// the completion of the message is polled.
#[derive(Debug)]
#[must_use = "a tag without a buffer is not added"]
pub struct TagBufferHandle<'g, 'q> {
    operation: TagMatchingOperationHandle<'g, 'q>,
    recv_wr_id: u64,
    tag: u64,
    mask: u64,
}

impl TagBufferHandle<'_, '_> {
    /// Sets no buffer. This is for messages of length zero.
    #[inline]
    pub fn setup_no_data(self) {
        // SAFETY: an empty list names no memory.
        unsafe { self.setup_sge_list(&[]) }
    }
}

impl Sealed for TagBufferHandle<'_, '_> {}

impl SetScatterGatherEntry for TagBufferHandle<'_, '_> {
    /// Sets one range of registered memory as the buffer for the message that matches the tag.
    ///
    /// # Safety
    ///
    /// The contract of [`SetScatterGatherEntry::setup_sge`] for a receive applies until the time described at
    /// [`TagBufferHandle`], instead of until the operation's completion.
    #[inline]
    unsafe fn setup_sge(self, lkey: impl Into<LocalKey>, addr: u64, length: u32) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { self.setup_sge_list(&[ScatterGatherEntry::new(lkey.into(), addr, length)]) }
    }

    /// Sets several ranges, in order.
    ///
    /// # Safety
    ///
    /// The contract of [`setup_sge`](Self::setup_sge) applies to each entry.
    #[inline]
    unsafe fn setup_sge_list(self, list: &[ScatterGatherEntry]) {
        let Self { operation, recv_wr_id, tag, mask } = self;
        let limit = operation.batch.max_sge();
        if list.len() > limit && operation.batch.reserve(operation.wr_id).is_some() {
            let reason = RefusalReason::TooManyEntries { given: list.len(), limit };
            return operation.batch.refuse(operation.wr_id, reason);
        }
        operation.write(ibv_ops_wr_opcode::IBV_WR_TAG_ADD, 0, |wr| {
            // SAFETY: the operation exists. Its list has space for `max_sge` entries, and for at least one. An entry is
            // an ibv_sge.
            unsafe {
                let add = &mut (*wr).tm.add;
                (add.recv_wr_id, add.tag, add.mask) = (recv_wr_id, tag, mask);
                add.num_sge = list.len() as c_int;
                if list.is_empty() {
                    // Drivers always read the first entry, so overwrite the entry of an earlier operation.
                    add.sg_list.write(ibv_sge { addr: 0, length: 0, lkey: 0 });
                }
                add.sg_list.copy_from_nonoverlapping(list.as_ptr().cast(), list.len());
            }
        });
    }
}
