//! The queue of `ibv_create_cq_ex`: a cursor that moves over the completions and reads the fields asked for.

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

/// A completion queue of the extended verbs.
#[doc(alias = "ibv_cq_ex")]
#[derive(Debug)]
pub struct ExtendedCompletionQueue {
    /// The queue of `core`, one step nearer.
    cq: NonNull<ibv_cq_ex>,
    fields: Fields,
    /// What each poll asks for: nothing beyond the completion. On the heap, so that drivers, which get its address, leave the queue
    /// itself where a compiler knows it.
    attr: Box<UnsafeCell<ibv_poll_cq_attr>>,
    core: Arc<CompletionQueueCore>,
}

// SAFETY: as the core, which keeps the queue alive and may go to another thread; polling takes `&mut`.
unsafe impl Send for ExtendedCompletionQueue {}
// SAFETY: a shared queue gives access to the core alone.
unsafe impl Sync for ExtendedCompletionQueue {}

impl ExtendedCompletionQueue {
    /// Wraps a queue whose readers for `fields`, the standard ones among them, have been seen to be there.
    ///
    /// # Safety
    ///
    /// `core` was made by `ibv_create_cq_ex`, and its functions for polling and for reading `fields`, the standard
    /// flags, opcode, vendor error and flags are not null.
    pub(super) unsafe fn new(core: Arc<CompletionQueueCore>, fields: Fields) -> Self {
        let attr = Box::new(UnsafeCell::new(ibv_poll_cq_attr { comp_mask: 0 }));
        Self { cq: core.as_non_null_ex(), fields, attr, core }
    }

    /// `ibv_start_poll(cq, attr)` — begins to poll; the queue is polled until the poller is dropped.
    ///
    /// Beginning takes the first completion off the queue already: it is lost where the poller is dropped before its first
    /// [`next`](ExtendedPoller::next). All others stay in the queue until `next` comes to them.
    ///
    /// Drivers hold the queue's lock until then: dropping a queue pair that uses the queue while the poller is out waits
    /// for ever. Note what is to be dropped, and drop it behind the poll.
    ///
    /// # Errors
    ///
    /// [`CompletionQueueEmpty`](PollCompletionQueueError::CompletionQueueEmpty) when there is none; else the driver's
    /// errno, or `EIO` where it gives none: the queue is broken.
    ///
    /// # References
    ///
    /// [ibv_create_cq_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
    #[doc(alias = "ibv_start_poll")]
    #[inline]
    pub fn start_poll(&mut self) -> Result<ExtendedPoller<'_>, PollCompletionQueueError> {
        // SAFETY: the CQ is live and extended, and `&mut self` says that no poller is out. One that was forgotten
        // (`mem::forget`) leaves its poll begun: drivers wait for their own lock then, or begin anew.
        let ret = unsafe { sys::ibv_start_poll(self.cq.as_ptr(), self.attr.get()) };
        // The answer of most polls first.
        if ret == libc::ENOENT {
            return Err(PollCompletionQueueError::CompletionQueueEmpty);
        }
        if ret != 0 {
            return Err(failure("ibv_start_poll", ret));
        }
        Ok(ExtendedPoller { cq: self.cq, fields: self.fields, first: 1, queue: PhantomData })
    }

    /// `ibv_start_poll(cq, attr)`, `ibv_next_poll(cq)`, `ibv_end_poll(cq)` — gives up to `most` completions to `take`, one after
    /// the other, in one poll; how many these were, 0 where the queue is empty.
    ///
    /// The poll ends when this returns, and also where `take` panics. What is left stays in the queue. While `take` runs, the queue
    /// is polled: see [`start_poll`](Self::start_poll).
    ///
    /// # Errors
    ///
    /// What `take` gave, behind whose completion no other is taken; else the driver's errno: the queue is broken.
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

    /// `ibv_resize_cq(cq, cqe)` — changes how many completions the queue holds at least. What has completed and is not
    /// polled yet stays; [`cqe`](CompletionQueue::cqe) tells what the device made of it.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: more than the device has, or fewer than completions in the queue.
    /// - `EOPNOTSUPP`, `ENOSYS`: the device cannot, or its driver does it wrongly (bnxt_re).
    /// - `EIO`: a resize before has lost the queue, see [`quirks`](crate::manual::quirks).
    ///
    /// # References
    ///
    /// [ibv_resize_cq(3)](https://man7.org/linux/man-pages/man3/ibv_resize_cq.3.html)
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&mut self, cqe: u32) -> Result<(), VerbError> {
        // SAFETY: `&mut self` says that no poll is under way, nor another resizing.
        let result = unsafe { self.core.resize(cqe) };
        if self.core.is_lost() {
            unsafe extern "C" fn start_poll(_: *mut ibv_cq_ex, _: *mut ibv_poll_cq_attr) -> c_int {
                libc::EIO
            }
            // SAFETY: the queue is live, and nobody polls it: its functions may be replaced.
            unsafe { (*self.cq.as_ptr()).start_poll = Some(start_poll) };
        }
        result
    }

    /// `ibv_destroy_cq(cq)` — destroys the queue and reports, where dropping only logs.
    ///
    /// # Errors
    ///
    /// `EBUSY` where queue pairs or events hold the queue, which then goes with the last of them; else the driver's errno,
    /// and the queue is leaked.
    #[doc(alias = "ibv_destroy_cq")]
    pub fn close(self) -> Result<(), VerbError> {
        self.core.close()
    }

    /// The fields that the queue delivers.
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

/// A poll under way; dropping it ends the poll (`ibv_end_poll`). The completion that [`next`](Self::next) would give first is off the
/// queue.
#[doc(alias = "ibv_end_poll")]
#[must_use = "the first completion is lost where the poller is dropped before `next`"]
#[derive(Debug)]
pub struct ExtendedPoller<'cq> {
    cq: NonNull<ibv_cq_ex>,
    fields: Fields,
    /// 1 if the cursor is at a completion that has not been given out. A whole word: a `bool` would share its byte with the kind of a
    /// [`GenericPoller`](super::GenericPoller), and a compiler that sees the byte change does not choose the kind before a loop.
    first: usize,
    queue: PhantomData<&'cq mut ExtendedCompletionQueue>,
}

impl ExtendedPoller<'_> {
    /// `ibv_next_poll(cq)` — the next completion, `None` when there is no further one.
    ///
    /// # Errors
    ///
    /// The driver's errno; the queue is broken then.
    #[doc(alias = "ibv_next_poll")]
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend, and the cursor moves")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<ExtendedWorkCompletion<'_>>, PollCompletionQueueError> {
        if self.first != 0 {
            self.first = 0;
        } else if !self.advance()? {
            return Ok(None);
        }
        Ok(Some(ExtendedWorkCompletion { cq: self.cq, fields: self.fields, poller: PhantomData }))
    }

    /// Gives up to `most` completions, one at least, to `take`: that which the cursor stands on first, so that no step asks whether it
    /// is. How many were given; the poll is to end then.
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

    /// Whether there is a further completion, which the cursor stands on then.
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

/// The completion that the cursor stands on; it is gone when the cursor moves.
pub struct ExtendedWorkCompletion<'p> {
    cq: NonNull<ibv_cq_ex>,
    fields: Fields,
    poller: PhantomData<&'p mut ()>,
}

// SAFETY of the readers below: the poll is under way and the cursor stands on a completion as long as `self` lives, since
// it borrows the poller. That each function is there was seen when the queue was built (`ExtendedCompletionQueue::new`).
impl ExtendedWorkCompletion<'_> {
    /// The number that the request was given.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        // SAFETY: see above; a field of the live queue.
        unsafe { (*self.cq.as_ptr()).wr_id }
    }

    /// How the request ended. With any status but success, only this, [`wr_id`](Self::wr_id), [`qp_num`](Self::qp_num)
    /// and [`vendor_err`](Self::vendor_err) mean anything.
    #[inline]
    pub fn status(&self) -> WorkCompletionStatus {
        // SAFETY: see above; a field of the live queue.
        WorkCompletionStatus::from_raw(unsafe { (*self.cq.as_ptr()).status }.0)
    }

    /// Which operation it was.
    #[doc(alias = "ibv_wc_read_opcode")]
    #[inline]
    pub fn opcode(&self) -> WorkCompletionOperationType {
        // SAFETY: see above; every extended queue has this reader.
        WorkCompletionOperationType::from_raw(unsafe { sys::ibv_wc_read_opcode(self.cq.as_ptr()) }.0)
    }

    /// The vendor's code for a failure.
    #[doc(alias = "ibv_wc_read_vendor_err")]
    #[inline]
    pub fn vendor_err(&self) -> u32 {
        // SAFETY: see above; every extended queue has this reader.
        unsafe { sys::ibv_wc_read_vendor_err(self.cq.as_ptr()) }
    }

    /// Bytes received, read, or fetched; unspecified for sends and writes.
    #[doc(alias = "ibv_wc_read_byte_len")]
    #[inline]
    pub fn byte_len(&self) -> u32 {
        // SAFETY: see above; a standard field.
        unsafe { sys::ibv_wc_read_byte_len(self.cq.as_ptr()) }
    }

    /// Immediate data, in host byte order; valid with [`WorkCompletionFlags::WithImmediate`].
    #[doc(alias = "ibv_wc_read_imm_data")]
    #[inline]
    pub fn imm_data(&self) -> u32 {
        // SAFETY: see above; a standard field.
        u32::from_be(unsafe { sys::ibv_wc_read_imm_data(self.cq.as_ptr()) })
    }

    /// The key that the peer invalidated; valid with [`WorkCompletionFlags::WithInvalidate`].
    #[doc(alias = "ibv_wc_read_invalidated_rkey")]
    #[inline]
    pub fn invalidated_rkey(&self) -> RemoteKey {
        // SAFETY: see above; read by the function of the immediate data, a standard field.
        RemoteKey::from_raw(unsafe { sys::ibv_wc_read_invalidated_rkey(self.cq.as_ptr()) })
    }

    /// The local queue pair.
    #[doc(alias = "ibv_wc_read_qp_num")]
    #[inline]
    pub fn qp_num(&self) -> u32 {
        // SAFETY: see above; a standard field.
        unsafe { sys::ibv_wc_read_qp_num(self.cq.as_ptr()) }
    }

    /// The sender's queue pair; for datagrams.
    #[doc(alias = "ibv_wc_read_src_qp")]
    #[inline]
    pub fn src_qp(&self) -> u32 {
        // SAFETY: see above; a standard field.
        unsafe { sys::ibv_wc_read_src_qp(self.cq.as_ptr()) }
    }

    /// What else the completion says.
    #[doc(alias = "ibv_wc_read_wc_flags")]
    #[inline]
    pub fn wc_flags(&self) -> WorkCompletionFlags {
        // SAFETY: see above; every extended queue has this reader.
        WorkCompletionFlags::from_bits_retain(unsafe { sys::ibv_wc_read_wc_flags(self.cq.as_ptr()) })
    }

    /// The sender's LID; for datagrams.
    #[doc(alias = "ibv_wc_read_slid")]
    #[inline]
    pub fn slid(&self) -> u32 {
        // SAFETY: see above; a standard field.
        unsafe { sys::ibv_wc_read_slid(self.cq.as_ptr()) }
    }

    /// The service level; for datagrams.
    #[doc(alias = "ibv_wc_read_sl")]
    #[inline]
    pub fn sl(&self) -> u8 {
        // SAFETY: see above; a standard field.
        unsafe { sys::ibv_wc_read_sl(self.cq.as_ptr()) }
    }

    /// The low bits of the LID that was addressed; for datagrams.
    #[doc(alias = "ibv_wc_read_dlid_path_bits")]
    #[inline]
    pub fn dlid_path_bits(&self) -> u8 {
        // SAFETY: see above; a standard field.
        unsafe { sys::ibv_wc_read_dlid_path_bits(self.cq.as_ptr()) }
    }

    /// When the request completed, in cycles of the device's clock;
    /// [`DeviceClock`](crate::ibverbs::device_context::DeviceClock) makes nanoseconds of them.
    ///
    /// # Errors
    ///
    /// Where the queue was not asked for [`CompletionTimestamp`](Fields::CompletionTimestamp).
    #[doc(alias = "ibv_wc_read_completion_ts")]
    #[inline]
    pub fn completion_timestamp(&self) -> Result<u64, FieldNotEnabled> {
        self.require(Fields::CompletionTimestamp)?;
        // SAFETY: see above; the queue has the field.
        Ok(unsafe { sys::ibv_wc_read_completion_ts(self.cq.as_ptr()) })
    }

    /// When the request completed, in nanoseconds of the wall clock, since 1970.
    ///
    /// # Errors
    ///
    /// Where the queue was not asked for [`CompletionTimestampWallclock`](Fields::CompletionTimestampWallclock).
    #[doc(alias = "ibv_wc_read_completion_wallclock_ns")]
    #[inline]
    pub fn completion_wallclock_ns(&self) -> Result<u64, FieldNotEnabled> {
        self.require(Fields::CompletionTimestampWallclock)?;
        // SAFETY: see above; the queue has the field.
        Ok(unsafe { sys::ibv_wc_read_completion_wallclock_ns(self.cq.as_ptr()) })
    }

    /// The VLAN tag that the device took off a received packet.
    ///
    /// # Errors
    ///
    /// Where the queue was not asked for [`CustomerVlan`](Fields::CustomerVlan).
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
    /// Where the queue was not asked for [`FlowTag`](Fields::FlowTag).
    #[doc(alias = "ibv_wc_read_flow_tag")]
    #[inline]
    pub fn flow_tag(&self) -> Result<u32, FieldNotEnabled> {
        self.require(Fields::FlowTag)?;
        // SAFETY: see above; the queue has the field.
        Ok(unsafe { sys::ibv_wc_read_flow_tag(self.cq.as_ptr()) })
    }

    /// The tag of a message that came to a shared receive queue with tag matching.
    ///
    /// # Errors
    ///
    /// Where the queue was not asked for [`TagMatchingInformation`](Fields::TagMatchingInformation).
    #[doc(alias = "ibv_wc_read_tm_info")]
    #[inline]
    pub fn tag_matching_info(&self) -> Result<TagMatchingInfo, FieldNotEnabled> {
        self.require(Fields::TagMatchingInformation)?;
        let mut info = ibv_wc_tm_info { tag: 0, priv_: 0 };
        // SAFETY: see above; the queue has the field, and `info` can be written.
        unsafe { sys::ibv_wc_read_tm_info(self.cq.as_ptr(), &mut info) };
        Ok(TagMatchingInfo { tag: info.tag, private: info.priv_ })
    }

    /// Where the datagram came from.
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

    /// The C object, whose cursor stands on this completion: for fields that a vendor adds.
    ///
    /// # Safety
    ///
    /// It is used only while `self` lives, and to read; the cursor stays where it is.
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
