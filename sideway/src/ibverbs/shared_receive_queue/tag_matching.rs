//! Tag matching: operations on the list of tags, by which the device finds the receive that a message is for.

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
    /// `enum ibv_ops_flags`: how an operation on the list of tags is to be processed.
    #[doc(alias = "ibv_ops_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct TagMatchingOperationFlags: u32 {
        /// Reports its completion on the completion queue of the shared receive queue. A failure is always reported.
        const Signaled = ibv_ops_flags::IBV_OPS_SIGNALED.0;
        /// Tells the device how many unexpected messages the program has processed:
        /// [`setup_unexpected_count`](TagMatchingOperationHandle::setup_unexpected_count).
        const Synchronize = ibv_ops_flags::IBV_OPS_TM_SYNC.0;
        // Later flags pass through.
        const _ = !0;
    }
}

/// A tag in the list of one queue, by which it is deleted.
///
/// Once the completion of a message that matched the tag was polled, or the tag was deleted, the driver may give its place in the
/// list to another: it is for the program to delete each tag once, and none that was matched.
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
    /// Which queue it is: no other ever has this number. Drivers take a tag for an index without a check.
    queue: u64,
}

impl TagOperations {
    /// For batches of up to `max_ops` operations with up to `max_sge` entries each.
    pub(super) fn new(verb: &'static str, max_ops: u32, max_sge: u32) -> Result<Self, VerbError> {
        Ok(Self { requests: Requests::new(verb, max_ops, max_sge)?, posted: 0, queue: next_number() })
    }

    /// Of a queue without tag matching.
    pub(super) fn none(verb: &'static str) -> Result<Self, VerbError> {
        const REASON: RefusalReason = RefusalReason::Invalid(
            "the queue has no tag matching: make it with SharedReceiveQueueBuilder::setup_tag_matching and build_ex",
        );
        Ok(Self { requests: Requests::refusing(verb, REASON)?, posted: 0, queue: next_number() })
    }

    /// Begins a batch.
    ///
    /// # Safety
    ///
    /// `srq` is live as long as `self` is borrowed, and the queue of these operations.
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

/// A batch of operations under construction. Dropping it takes the batch back.
#[derive(Debug)]
pub struct PostTagOperationsGuard<'q> {
    srq: *mut ibv_srq,
    queue: u64,
    batch: Batch<'q, ibv_ops_wr>,
    posted: &'q mut usize,
}

impl<'q> PostTagOperationsGuard<'q> {
    /// Begins an operation. `wr_id` comes back in the operation's own completion, which comes where `flags` say so or it
    /// fails.
    #[inline]
    pub fn construct_op(&mut self, wr_id: u64, flags: TagMatchingOperationFlags) -> TagMatchingOperationHandle<'_, 'q> {
        let queue = self.queue;
        TagMatchingOperationHandle { batch: &mut self.batch, queue, wr_id, flags, unexpected_count: 0 }
    }

    /// `ibv_post_srq_ops(srq, wr, bad_wr)` — hands the batch to the device. An empty batch is no error and touches nothing.
    ///
    /// Afterwards, [`SharedReceiveQueue::posted_tag`](super::SharedReceiveQueue::posted_tag) gives the tags that were added,
    /// also those before the operation that failed.
    ///
    /// # Errors
    ///
    /// [`PostError`] tells which operation is at fault, and how many before it were posted. `ENOMEM`: the list, or the queue
    /// of operations, is full.
    ///
    /// # References
    ///
    /// [ibv_post_srq_ops(3)](https://man7.org/linux/man-pages/man3/ibv_post_srq_ops.3.html)
    #[doc(alias = "ibv_post_srq_ops")]
    pub fn post(self) -> Result<(), PostError> {
        let Self { srq, batch, posted, .. } = self;
        let all = batch.len();
        // SAFETY: the queue is live while its operations are borrowed (`TagOperations::batch`), and the batch gives a list of
        // operations that stays for the call.
        let result = batch.post(VERB, |first, bad| unsafe { sys::ibv_post_srq_ops(srq, first, bad) });
        *posted = match &result {
            Ok(()) => all,
            // Where the driver does not say, no tag is known to be one.
            Err(error) => error.posted().unwrap_or(0),
        };
        result
    }
}

/// An operation whose kind is to be said. Dropped, it leaves no trace.
#[must_use = "an operation without its kind is not posted"]
pub struct TagMatchingOperationHandle<'g, 'q> {
    batch: &'g mut Batch<'q, ibv_ops_wr>,
    queue: u64,
    wr_id: u64,
    flags: TagMatchingOperationFlags,
    unexpected_count: u32,
}

impl<'g, 'q> TagMatchingOperationHandle<'g, 'q> {
    /// How many unexpected messages, those that matched no tag, the program has processed so far. The device reads it where
    /// the operation has [`TagMatchingOperationFlags::Synchronize`], or is a synchronization.
    #[inline]
    pub fn setup_unexpected_count(mut self, unexpected_count: u32) -> Self {
        self.unexpected_count = unexpected_count;
        self
    }

    /// Adds a tag: a message matches it whose own tag, masked with `mask`, is `tag`. Its bytes go to the buffer that is to be
    /// said next, and its completion has `recv_wr_id`. Both `tag` and `mask` are in host byte order.
    #[inline]
    pub fn setup_add(self, recv_wr_id: u64, tag: u64, mask: u64) -> TagBufferHandle<'g, 'q> {
        TagBufferHandle { operation: self, recv_wr_id, tag, mask }
    }

    /// Deletes a tag. Where a message has matched it meanwhile, the operation fails, with the status
    /// [`TagMatchingError`](crate::ibverbs::completion::WorkCompletionStatus::TagMatchingError) or when it is posted. Its
    /// completion always comes, as if [`TagMatchingOperationFlags::Signaled`] were given: only then does a driver know when the
    /// tag's place in the list is free.
    ///
    /// # Safety
    ///
    /// - The completion of a message that matched the tag (`recv_wr_id`) has not been polled.
    /// - The tag was not deleted by an operation that was posted before, nor by another of this batch.
    ///
    /// A driver that is told of a tag whose place is free, or another's by now, counts it twice: later it gives one place to two
    /// tags, and reports the one for the other, whose memory would be given back while the device still writes to it.
    #[inline]
    pub unsafe fn setup_delete(mut self, tag: Tag) {
        if tag.queue != self.queue {
            // With the answer that a queue without tag matching gives to everything.
            if self.batch.reserve(self.wr_id).is_some() {
                self.batch
                    .refuse(self.wr_id, RefusalReason::Invalid("the tag belongs to another shared receive queue"));
            }
            return;
        }
        self.flags |= TagMatchingOperationFlags::Signaled;
        self.write(ibv_ops_wr_opcode::IBV_WR_TAG_DEL, tag.handle, |_| ());
    }

    /// Changes no tag, and tells the device how many unexpected messages the program has processed.
    #[inline]
    pub fn setup_synchronize(self) {
        self.write(ibv_ops_wr_opcode::IBV_WR_TAG_SYNC, 0, |_| ());
    }

    /// Takes the operation into the batch. `rest` writes what else it has.
    #[inline]
    fn write(self, opcode: ibv_ops_wr_opcode, handle: u32, rest: impl FnOnce(*mut ibv_ops_wr)) {
        let Some(wr) = self.batch.reserve(self.wr_id) else { return };
        // SAFETY: the operation exists, and the batch has it to itself.
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

/// A tag to be added whose buffer is to be said, which puts it into the batch. Dropped, it leaves no trace.
///
/// Its memory is the device's for longer than that of a request: until a message has matched the tag and its completion
/// (`recv_wr_id`) was polled, or the deletion of the tag has completed with success, or the shared queue was destroyed. The
/// driver, too, writes to it, when the message is polled.
#[derive(Debug)]
#[must_use = "a tag without a buffer is not added"]
pub struct TagBufferHandle<'g, 'q> {
    operation: TagMatchingOperationHandle<'g, 'q>,
    recv_wr_id: u64,
    tag: u64,
    mask: u64,
}

impl TagBufferHandle<'_, '_> {
    /// No buffer: for messages of length zero.
    #[inline]
    pub fn setup_no_data(self) {
        // SAFETY: an empty list names no memory.
        unsafe { self.setup_sge_list(&[]) }
    }
}

impl Sealed for TagBufferHandle<'_, '_> {}

impl SetScatterGatherEntry for TagBufferHandle<'_, '_> {
    /// One range of registered memory, for the message that matches.
    ///
    /// # Safety
    ///
    /// What [`SetScatterGatherEntry::setup_sge`] asks of a receive, not until the operation completes but until the end that
    /// [`TagBufferHandle`] names.
    #[inline]
    unsafe fn setup_sge(self, lkey: impl Into<LocalKey>, addr: u64, length: u32) {
        // SAFETY: the caller's promise.
        unsafe { self.setup_sge_list(&[ScatterGatherEntry::new(lkey.into(), addr, length)]) }
    }

    /// Several ranges, one behind the other.
    ///
    /// # Safety
    ///
    /// As [`setup_sge`](Self::setup_sge), for each.
    #[inline]
    unsafe fn setup_sge_list(self, list: &[ScatterGatherEntry]) {
        let Self { operation, recv_wr_id, tag, mask } = self;
        let limit = operation.batch.max_sge();
        if list.len() > limit && operation.batch.reserve(operation.wr_id).is_some() {
            let reason = RefusalReason::TooManyEntries { given: list.len(), limit };
            return operation.batch.refuse(operation.wr_id, reason);
        }
        operation.write(ibv_ops_wr_opcode::IBV_WR_TAG_ADD, 0, |wr| {
            // SAFETY: the operation exists; its list has room for `max_sge` entries and at least one, and an entry is an
            // ibv_sge.
            unsafe {
                let add = &mut (*wr).tm.add;
                (add.recv_wr_id, add.tag, add.mask) = (recv_wr_id, tag, mask);
                add.num_sge = list.len() as c_int;
                if list.is_empty() {
                    // Drivers read the first entry whether there is one or not: what an operation of the past had there is
                    // not theirs any more.
                    add.sg_list.write(ibv_sge { addr: 0, length: 0, lkey: 0 });
                }
                add.sg_list.copy_from_nonoverlapping(list.as_ptr().cast(), list.len());
            }
        });
    }
}
