//! The completion queue that `ibv_create_cq_ex` creates. A poll moves a cursor over the completions, and reads the
//! requested fields of the completion under the cursor.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_cq_ex, ibv_poll_cq_attr, ibv_wc_tm_info};

use super::queue::{AsCore, CompletionQueue, CompletionQueueCore};
use super::{
    CreateCompletionQueueWorkCompletionFlags as Fields, FieldNotEnabled, PollCompletionQueueError, TagMatchingInfo,
    WorkCompletionFlags, WorkCompletionOperationType, WorkCompletionSource, WorkCompletionStatus,
};
use crate::error::VerbError;
use crate::ffi::errno_of;
use crate::ibverbs::memory_region::RemoteKey;

/// A completion queue that uses the extended verbs.
#[doc(alias = "ibv_cq_ex")]
#[derive(Debug)]
pub struct ExtendedCompletionQueue {
    /// A copy of the pointer in `core`, which saves one memory access in each poll.
    cq: NonNull<ibv_cq_ex>,
    fields: Fields,
    /// The attributes that each poll passes to the driver; no option is set. They are on the heap because drivers
    /// receive their address, and so the compiler can keep the queue itself in registers.
    attr: Box<UnsafeCell<ibv_poll_cq_attr>>,
    core: Arc<CompletionQueueCore>,
}

// SAFETY: the core keeps the queue alive and is `Send`, and polling takes `&mut`.
unsafe impl Send for ExtendedCompletionQueue {}
// SAFETY: a shared reference to the queue only gives access to the core, which is `Sync`.
unsafe impl Sync for ExtendedCompletionQueue {}

impl ExtendedCompletionQueue {
    /// Wraps a queue. The caller has checked that the queue has a reader for each of `fields` and for each standard
    /// field.
    ///
    /// # Safety
    ///
    /// `core` was created by `ibv_create_cq_ex`. The queue's functions to poll, and to read `fields`, the standard
    /// fields, the opcode, the vendor error and the flags, are not null.
    pub(super) unsafe fn new(core: Arc<CompletionQueueCore>, fields: Fields) -> Self {
        let attr = Box::new(UnsafeCell::new(ibv_poll_cq_attr { comp_mask: 0 }));
        Self { cq: core.as_non_null_ex(), fields, attr, core }
    }

    /// `ibv_start_poll(cq, attr)` — starts a poll. The poll ends when the poller is dropped.
    ///
    /// The start of the poll removes the first completion from the queue. This completion is lost if the poller is
    /// dropped before the first call of [`next`](ExtendedPoller::next). All other completions stay in the queue until
    /// `next` reaches them.
    ///
    /// Drivers hold the queue's lock during the poll, so dropping a queue pair of this queue while the poller exists
    /// deadlocks. Drop the queue pair after the poll.
    ///
    /// # Errors
    ///
    /// Returns [`CompletionQueueEmpty`](PollCompletionQueueError::CompletionQueueEmpty) if there is no completion.
    /// After any other error the queue is broken. The error then has the driver's errno, or `EIO` if the driver
    /// returned none.
    ///
    /// # References
    ///
    /// [ibv_create_cq_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
    #[doc(alias = "ibv_start_poll")]
    #[inline]
    pub fn start_poll(&mut self) -> Result<ExtendedPoller<'_>, PollCompletionQueueError> {
        // SAFETY: the CQ is live and extended, and `&mut self` excludes another poller. A forgotten poller
        // (`mem::forget`) leaves its poll open. Drivers then deadlock on their own lock, or start a new poll; both are
        // sound.
        let ret = unsafe { sys::ibv_start_poll(self.cq.as_ptr(), self.attr.get()) };
        // The most frequent result is checked first.
        if ret == libc::ENOENT {
            return Err(PollCompletionQueueError::CompletionQueueEmpty);
        }
        if ret != 0 {
            return Err(failure("ibv_start_poll", ret));
        }
        Ok(ExtendedPoller { cq: self.cq, fields: self.fields, first: 1, queue: PhantomData })
    }

    /// `ibv_start_poll(cq, attr)`, `ibv_next_poll(cq)`, `ibv_end_poll(cq)` — passes up to `most` completions to `take`
    /// one by one, in one poll. Returns the number of completions, which is 0 if the queue is empty.
    ///
    /// The poll ends when this returns, or when `take` panics. Remaining completions stay in the queue. The poll is
    /// still open while `take` runs; see [`start_poll`](Self::start_poll).
    ///
    /// # Errors
    ///
    /// Returns the error of `take`, if it returned one; no completion is taken after that. Otherwise returns the
    /// driver's errno, and the queue is broken.
    ///
    /// # References
    ///
    /// [ibv_create_cq_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
    #[doc(alias = "ibv_next_poll")]
    #[doc(alias = "ibv_end_poll")]
    #[inline(always)]
    pub fn poll_each<E: From<PollCompletionQueueError>>(
        &mut self,
        most: u32,
        take: impl FnMut(ExtendedWorkCompletion<'_>) -> Result<(), E>,
    ) -> Result<u32, E> {
        if most == 0 {
            return Ok(0);
        }
        match self.start_poll() {
            Ok(mut poller) => poller.give(most, take),
            Err(PollCompletionQueueError::CompletionQueueEmpty) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// `ibv_resize_cq(cq, cqe)` — changes the minimum capacity of the queue. Completions not yet polled remain;
    /// [`cqe`](CompletionQueue::cqe) returns the actual capacity.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `cqe` exceeds the device's limit, or is smaller than the number of completions in the queue.
    /// - `EOPNOTSUPP`, `ENOSYS`: the device does not support it, or its driver is faulty (bnxt_re).
    /// - `EIO`: the driver lost the queue in an earlier resize; see [`quirks`](crate::manual::quirks).
    ///
    /// # References
    ///
    /// [ibv_resize_cq(3)](https://man7.org/linux/man-pages/man3/ibv_resize_cq.3.html)
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&mut self, cqe: u32) -> Result<(), VerbError> {
        // SAFETY: `&mut self` excludes polls and other resizes.
        let result = unsafe { self.core.resize(cqe) };
        if self.core.is_lost() {
            unsafe extern "C" fn start_poll(_: *mut ibv_cq_ex, _: *mut ibv_poll_cq_attr) -> c_int {
                libc::EIO
            }
            // SAFETY: the queue is live and not polled, so its functions may be replaced.
            unsafe { (*self.cq.as_ptr()).start_poll = Some(start_poll) };
        }
        result
    }

    /// `ibv_destroy_cq(cq)` — destroys the queue. This method returns an error of the verb, whereas drop only logs it.
    ///
    /// # Errors
    ///
    /// Returns `EBUSY` if queue pairs or events still reference the queue. The queue is then destroyed when the last
    /// reference is dropped. Otherwise returns the driver's errno, and the queue is leaked.
    #[doc(alias = "ibv_destroy_cq")]
    pub fn close(self) -> Result<(), VerbError> {
        self.core.close()
    }

    /// Returns the fields that the queue delivers.
    pub fn wc_flags(&self) -> Fields {
        self.fields
    }
}

#[cold]
#[inline(never)]
fn failure(verb: &'static str, ret: c_int) -> PollCompletionQueueError {
    match ret {
        failed if failed > 0 && failed != libc::EIO => VerbError::new(verb, errno_of(failed)).into(),
        failed => VerbError::of_poll(verb, failed).into(),
    }
}

impl AsCore for ExtendedCompletionQueue {
    fn core(&self) -> &Arc<CompletionQueueCore> {
        &self.core
    }
}

impl CompletionQueue for ExtendedCompletionQueue {}

/// An open poll. Dropping the poller ends the poll (`ibv_end_poll`). The completion that the first call of
/// [`next`](Self::next) returns is already removed from the queue.
#[doc(alias = "ibv_end_poll")]
#[must_use = "dropping the poller before `next` loses the first completion"]
#[derive(Debug)]
pub struct ExtendedPoller<'cq> {
    cq: NonNull<ibv_cq_ex>,
    fields: Fields,
    /// 1 if the cursor is at a completion that was not returned yet. This field is a whole word, because a `bool` would
    /// share its byte with the discriminant of a [`GenericPoller`](super::GenericPoller). If a loop changes that byte,
    /// the compiler does not hoist the match on the discriminant out of the loop.
    first: usize,
    queue: PhantomData<&'cq mut ExtendedCompletionQueue>,
}

impl ExtendedPoller<'_> {
    /// `ibv_next_poll(cq)` — returns the next completion, or `None` if the queue is empty.
    ///
    /// # Errors
    ///
    /// The driver's errno; the queue is then broken.
    #[doc(alias = "ibv_next_poll")]
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot return borrowed items, and the cursor moves")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<ExtendedWorkCompletion<'_>>, PollCompletionQueueError> {
        if self.first != 0 {
            self.first = 0;
        } else if !self.advance()? {
            return Ok(None);
        }
        Ok(Some(ExtendedWorkCompletion { cq: self.cq, fields: self.fields, poller: PhantomData }))
    }

    /// Passes up to `most` completions to `take`. Always passes the completion under the cursor, so that the loop does
    /// not treat the first completion as a special case. Returns the number of completions; the caller must then end
    /// the poll.
    #[inline(always)]
    pub(in crate::ibverbs) fn give<E: From<PollCompletionQueueError>>(
        &mut self,
        most: u32,
        mut take: impl FnMut(ExtendedWorkCompletion<'_>) -> Result<(), E>,
    ) -> Result<u32, E> {
        let mut left = most;
        loop {
            take(ExtendedWorkCompletion { cq: self.cq, fields: self.fields, poller: PhantomData })?;
            left -= 1;
            if left == 0 || !self.advance()? {
                return Ok(most - left);
            }
        }
    }

    /// Advances the cursor. Returns whether there is a further completion.
    #[inline]
    fn advance(&mut self) -> Result<bool, PollCompletionQueueError> {
        // SAFETY: the poll was started and has not ended.
        match unsafe { sys::ibv_next_poll(self.cq.as_ptr()) } {
            0 => Ok(true),
            libc::ENOENT => Ok(false),
            failed => Err(failure("ibv_next_poll", failed)),
        }
    }
}

impl Drop for ExtendedPoller<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the poll was started and ends here, once.
        unsafe { sys::ibv_end_poll(self.cq.as_ptr()) }
    }
}

/// The completion under the cursor. It becomes invalid when the cursor moves.
pub struct ExtendedWorkCompletion<'p> {
    cq: NonNull<ibv_cq_ex>,
    fields: Fields,
    poller: PhantomData<&'p mut ()>,
}

// SAFETY of the readers below: the poll is open and the cursor stays on the completion while `self` lives, because it
// borrows the poller. The queue's builder checked that each function exists (`ExtendedCompletionQueue::new`).
impl ExtendedWorkCompletion<'_> {
    /// The request's number.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        // SAFETY: see above; `wr_id` and `status` are fields of the queue, which is live.
        unsafe { (*self.cq.as_ptr()).wr_id }
    }

    /// Returns the request's status. If it is not success, only the status, [`wr_id`](Self::wr_id),
    /// [`qp_num`](Self::qp_num) and [`vendor_err`](Self::vendor_err) are valid.
    #[inline]
    pub fn status(&self) -> WorkCompletionStatus {
        // SAFETY: see above; `wr_id` and `status` are fields of the queue, which is live.
        WorkCompletionStatus::from_raw(unsafe { (*self.cq.as_ptr()).status }.0)
    }

    /// The completed operation.
    #[doc(alias = "ibv_wc_read_opcode")]
    #[inline]
    pub fn opcode(&self) -> WorkCompletionOperationType {
        // SAFETY: see above; every extended queue has this reader.
        WorkCompletionOperationType::from_raw(unsafe { sys::ibv_wc_read_opcode(self.cq.as_ptr()) }.0)
    }

    /// The vendor's error code.
    #[doc(alias = "ibv_wc_read_vendor_err")]
    #[inline]
    pub fn vendor_err(&self) -> u32 {
        // SAFETY: see above; every extended queue has this reader.
        unsafe { sys::ibv_wc_read_vendor_err(self.cq.as_ptr()) }
    }

    /// The number of bytes that were received, read, or fetched by an atomic. It is unspecified for sends and writes.
    #[doc(alias = "ibv_wc_read_byte_len")]
    #[inline]
    pub fn byte_len(&self) -> u32 {
        // SAFETY: see above; this is a standard field.
        unsafe { sys::ibv_wc_read_byte_len(self.cq.as_ptr()) }
    }

    /// The immediate data, in host byte order. It is valid if the completion has
    /// [`WorkCompletionFlags::WithImmediate`].
    #[doc(alias = "ibv_wc_read_imm_data")]
    #[inline]
    pub fn imm_data(&self) -> u32 {
        // SAFETY: see above; this is a standard field.
        u32::from_be(unsafe { sys::ibv_wc_read_imm_data(self.cq.as_ptr()) })
    }

    /// The key that the peer invalidated. It is valid if the completion has [`WorkCompletionFlags::WithInvalidate`].
    #[doc(alias = "ibv_wc_read_invalidated_rkey")]
    #[inline]
    pub fn invalidated_rkey(&self) -> RemoteKey {
        // SAFETY: see above; the call uses the reader of the immediate data, which is a standard field.
        RemoteKey::from_raw(unsafe { sys::ibv_wc_read_invalidated_rkey(self.cq.as_ptr()) })
    }

    /// The number of the local queue pair.
    #[doc(alias = "ibv_wc_read_qp_num")]
    #[inline]
    pub fn qp_num(&self) -> u32 {
        // SAFETY: see above; this is a standard field.
        unsafe { sys::ibv_wc_read_qp_num(self.cq.as_ptr()) }
    }

    /// The number of the sender's queue pair. It is valid only for datagrams.
    #[doc(alias = "ibv_wc_read_src_qp")]
    #[inline]
    pub fn src_qp(&self) -> u32 {
        // SAFETY: see above; this is a standard field.
        unsafe { sys::ibv_wc_read_src_qp(self.cq.as_ptr()) }
    }

    /// Flags that describe the message and its valid fields.
    #[doc(alias = "ibv_wc_read_wc_flags")]
    #[inline]
    pub fn wc_flags(&self) -> WorkCompletionFlags {
        // SAFETY: see above; every extended queue has this reader.
        WorkCompletionFlags::from_bits_retain(unsafe { sys::ibv_wc_read_wc_flags(self.cq.as_ptr()) })
    }

    /// The sender's LID. It is valid only for datagrams.
    #[doc(alias = "ibv_wc_read_slid")]
    #[inline]
    pub fn slid(&self) -> u32 {
        // SAFETY: see above; this is a standard field.
        unsafe { sys::ibv_wc_read_slid(self.cq.as_ptr()) }
    }

    /// The service level. It is valid only for datagrams.
    #[doc(alias = "ibv_wc_read_sl")]
    #[inline]
    pub fn sl(&self) -> u8 {
        // SAFETY: see above; this is a standard field.
        unsafe { sys::ibv_wc_read_sl(self.cq.as_ptr()) }
    }

    /// The low bits of the destination LID. They are valid only for datagrams.
    #[doc(alias = "ibv_wc_read_dlid_path_bits")]
    #[inline]
    pub fn dlid_path_bits(&self) -> u8 {
        // SAFETY: see above; this is a standard field.
        unsafe { sys::ibv_wc_read_dlid_path_bits(self.cq.as_ptr()) }
    }

    /// The completion time, in cycles of the device's clock;
    /// [`DeviceClock`](crate::ibverbs::device_context::DeviceClock) converts them to nanoseconds.
    ///
    /// # Errors
    ///
    /// Returns an error if the queue was built without [`CompletionTimestamp`](Fields::CompletionTimestamp).
    #[doc(alias = "ibv_wc_read_completion_ts")]
    #[inline]
    pub fn completion_timestamp(&self) -> Result<u64, FieldNotEnabled> {
        self.require(Fields::CompletionTimestamp)?;
        // SAFETY: see above; the queue has the field.
        Ok(unsafe { sys::ibv_wc_read_completion_ts(self.cq.as_ptr()) })
    }

    /// The completion time, in nanoseconds of the wall clock, since 1970.
    ///
    /// # Errors
    ///
    /// Returns an error if the queue was built without
    /// [`CompletionTimestampWallclock`](Fields::CompletionTimestampWallclock).
    #[doc(alias = "ibv_wc_read_completion_wallclock_ns")]
    #[inline]
    pub fn completion_wallclock_ns(&self) -> Result<u64, FieldNotEnabled> {
        self.require(Fields::CompletionTimestampWallclock)?;
        // SAFETY: see above; the queue has the field.
        Ok(unsafe { sys::ibv_wc_read_completion_wallclock_ns(self.cq.as_ptr()) })
    }

    /// The VLAN tag that the device removed from a received packet.
    ///
    /// # Errors
    ///
    /// Returns an error if the queue was built without [`CustomerVlan`](Fields::CustomerVlan).
    #[doc(alias = "ibv_wc_read_cvlan")]
    #[inline]
    pub fn cvlan(&self) -> Result<u16, FieldNotEnabled> {
        self.require(Fields::CustomerVlan)?;
        // SAFETY: see above; the queue has the field.
        Ok(unsafe { sys::ibv_wc_read_cvlan(self.cq.as_ptr()) })
    }

    /// The tag of the flow rule that the received packet matched.
    ///
    /// # Errors
    ///
    /// Returns an error if the queue was built without [`FlowTag`](Fields::FlowTag).
    #[doc(alias = "ibv_wc_read_flow_tag")]
    #[inline]
    pub fn flow_tag(&self) -> Result<u32, FieldNotEnabled> {
        self.require(Fields::FlowTag)?;
        // SAFETY: see above; the queue has the field.
        Ok(unsafe { sys::ibv_wc_read_flow_tag(self.cq.as_ptr()) })
    }

    /// The tag of a message received by a shared receive queue with tag matching.
    ///
    /// # Errors
    ///
    /// Returns an error if the queue was built without [`TagMatchingInformation`](Fields::TagMatchingInformation).
    #[doc(alias = "ibv_wc_read_tm_info")]
    #[inline]
    pub fn tag_matching_info(&self) -> Result<TagMatchingInfo, FieldNotEnabled> {
        self.require(Fields::TagMatchingInformation)?;
        let mut info = ibv_wc_tm_info { tag: 0, priv_: 0 };
        // SAFETY: see above; the queue has the field, and the call may write to `info`.
        unsafe { sys::ibv_wc_read_tm_info(self.cq.as_ptr(), &mut info) };
        Ok(TagMatchingInfo { tag: info.tag, private: info.priv_ })
    }

    /// The datagram's source.
    #[inline]
    pub fn source(&self) -> WorkCompletionSource {
        WorkCompletionSource {
            src_qp: self.src_qp(),
            slid: self.slid(),
            sl: self.sl(),
            dlid_path_bits: self.dlid_path_bits(),
            wc_flags: self.wc_flags(),
        }
    }

    /// Returns the C object, whose cursor is on this completion, so that a program can read fields that only a vendor's
    /// library provides.
    ///
    /// # Safety
    ///
    /// Use the object only while `self` lives, and only to read. Do not move the cursor.
    #[doc(alias = "ibv_cq_ex")]
    #[inline]
    pub unsafe fn cq_ex(&self) -> NonNull<ibv_cq_ex> {
        self.cq
    }

    #[inline]
    fn require(&self, field: Fields) -> Result<(), FieldNotEnabled> {
        if self.fields.contains(field) { Ok(()) } else { Err(FieldNotEnabled::new(field)) }
    }
}

impl fmt::Debug for ExtendedWorkCompletion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtendedWorkCompletion")
            .field("wr_id", &self.wr_id())
            .field("status", &self.status())
            .field("opcode", &self.opcode())
            .field("vendor_err", &self.vendor_err())
            .field("byte_len", &self.byte_len())
            .field("qp_num", &self.qp_num())
            .finish()
    }
}
