//! The completion queue that `ibv_create_cq` creates, and that `ibv_poll_cq` polls in batches.

use std::sync::Arc;
use std::{fmt, mem};

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_context, ibv_cq, ibv_wc};

use super::queue::{AsCore, CompletionQueue, CompletionQueueCore};
use super::{
    PollCompletionQueueError, WorkCompletionFlags, WorkCompletionOperationType, WorkCompletionSource,
    WorkCompletionStatus,
};
use crate::error::VerbError;
use crate::ibverbs::memory_region::RemoteKey;

/// The default maximum number of completions per poll.
const DEFAULT_BATCH: usize = 32;

/// The upper limit of completions per poll.
const MAX_BATCH: u32 = 1 << 20;

/// A completion queue that uses the basic verbs. Every device supports it.
pub struct BasicCompletionQueue {
    /// A copy of the pointer in `core`, which saves one memory access in each poll.
    cq: *mut ibv_cq,
    /// The buffer for polled completions, with at least one entry.
    batch: Box<[ibv_wc]>,
    core: Arc<CompletionQueueCore>,
}

// SAFETY: the core keeps the queue alive and is `Send`, and polling takes `&mut`.
unsafe impl Send for BasicCompletionQueue {}
// SAFETY: a shared reference to the queue only gives access to the core, which is `Sync`.
unsafe impl Sync for BasicCompletionQueue {}

impl BasicCompletionQueue {
    pub(super) fn new(core: Arc<CompletionQueueCore>) -> Self {
        Self { cq: core.raw(), batch: new_batch(DEFAULT_BATCH), core }
    }

    /// `ibv_poll_cq(cq, n, wc)` — polls at most one batch of completions. From then on, only the poller holds the
    /// completions. Those that the caller has not taken when the poller is dropped are lost.
    ///
    /// # Errors
    ///
    /// Returns [`CompletionQueueEmpty`](PollCompletionQueueError::CompletionQueueEmpty) if there is no completion.
    /// Returns `EIO` if the queue is broken, and `EINVAL` if the driver reports more completions than requested.
    ///
    /// # References
    ///
    /// [ibv_poll_cq(3)](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html)
    #[doc(alias = "ibv_poll_cq")]
    #[inline]
    pub fn start_poll(&mut self) -> Result<BasicPoller<'_>, PollCompletionQueueError> {
        self.take_off(self.batch.len())
    }

    /// `ibv_poll_cq(cq, n, wc)` — polls up to `most` completions, but not more than one batch, and passes them to
    /// `take` one by one. Returns the number of completions, which is 0 if the queue is empty.
    ///
    /// # Errors
    ///
    /// Returns the error of `take`, if it returned one. The remaining completions of the same batch are then lost; they
    /// are also lost if `take` panics. The other errors are those of [`start_poll`](Self::start_poll).
    ///
    /// # References
    ///
    /// [ibv_poll_cq(3)](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html)
    #[doc(alias = "ibv_poll_cq")]
    #[inline(always)]
    pub fn poll_each<E: From<PollCompletionQueueError>>(
        &mut self,
        most: u32,
        mut take: impl FnMut(BasicWorkCompletion<'_>) -> Result<(), E>,
    ) -> Result<u32, E> {
        let poller = match self.take_off(self.batch.len().min(most as usize)) {
            Ok(poller) => poller,
            Err(PollCompletionQueueError::CompletionQueueEmpty) => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        let taken = poller.completions.len() as u32;
        for wc in poller.completions {
            take(BasicWorkCompletion { wc })?;
        }
        Ok(taken)
    }

    /// Polls up to `most` completions. `most` must not exceed the size of the batch.
    #[inline]
    fn take_off(&mut self, most: usize) -> Result<BasicPoller<'_>, PollCompletionQueueError> {
        // SAFETY: the CQ is live; the batch has space for `most` entries (`setup_poll_batch` keeps it within `c_int`).
        let polled = unsafe { sys::ibv_poll_cq(self.cq, most as c_int, self.batch.as_mut_ptr()) };
        if polled == 0 {
            return Err(PollCompletionQueueError::CompletionQueueEmpty);
        }
        // One comparison detects two faults: as an unsigned number, a negative count is larger than any batch
        // (`MAX_BATCH`).
        if polled as u32 > most as u32 {
            return Err(wrong_count(polled, most));
        }
        // SAFETY: the driver has filled this number of entries.
        let filled = unsafe { self.batch.get_unchecked(..polled as usize) };
        Ok(BasicPoller { completions: filled.iter() })
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
            self.cq = lost_queue();
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

    /// Sets the maximum number of completions that one [`start_poll`](Self::start_poll) polls. It is at least 1 and at
    /// most the queue's capacity; the default is 32.
    pub fn setup_poll_batch(&mut self, completions: u32) -> &mut Self {
        self.batch = new_batch(completions.min(self.cqe()).clamp(1, MAX_BATCH) as usize);
        self
    }
}

fn new_batch(completions: usize) -> Box<[ibv_wc]> {
    // SAFETY: all zeros are a valid ibv_wc, which has only integers.
    (0..completions).map(|_| unsafe { mem::zeroed() }).collect()
}

/// Returns the substitute for a queue that its driver has lost. Each poll of the substitute fails.
#[cold]
fn lost_queue() -> *mut ibv_cq {
    unsafe extern "C" fn poll_cq(_: *mut ibv_cq, _: c_int, _: *mut ibv_wc) -> c_int {
        -libc::EIO
    }
    // SAFETY: all zeros are a valid value of both structs, because they have only integers, pointers, nullable
    // functions, and C locks.
    let (mut context, mut cq): (Box<ibv_context>, Box<ibv_cq>) =
        unsafe { (Box::new(mem::zeroed()), Box::new(mem::zeroed())) };
    context.ops.poll_cq = Some(poll_cq);
    cq.context = Box::leak(context);
    Box::leak(cq)
}

/// Returns the error of a driver that failed, or reported more completions than requested.
#[cold]
#[inline(never)]
fn wrong_count(polled: c_int, asked: usize) -> PollCompletionQueueError {
    const VERB: &str = "ibv_poll_cq";
    if polled < 0 {
        return VerbError::of_poll(VERB, polled).into();
    }
    VerbError::invalid(VERB, format!("the driver returned {polled} completions, but at most {asked} were requested"))
        .into()
}

impl AsCore for BasicCompletionQueue {
    fn core(&self) -> &Arc<CompletionQueueCore> {
        &self.core
    }
}

impl CompletionQueue for BasicCompletionQueue {}

impl fmt::Debug for BasicCompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BasicCompletionQueue").field("core", &self.core).field("batch", &self.batch.len()).finish()
    }
}

/// The completions of one poll, which are already removed from the queue. If the poller is dropped, the completions
/// that were not taken with [`next`](Self::next) are lost.
pub struct BasicPoller<'cq> {
    completions: std::slice::Iter<'cq, ibv_wc>,
}

impl BasicPoller<'_> {
    /// Returns the next completion of the batch, or `None` after the last.
    ///
    /// # Errors
    ///
    /// This method never returns an error. It has a `Result` only because its signature is that of the extended poller.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator cannot return borrowed items; the extended \
        poller must"
    )]
    #[inline]
    pub fn next(&mut self) -> Result<Option<BasicWorkCompletion<'_>>, PollCompletionQueueError> {
        Ok(self.completions.next().map(|wc| BasicWorkCompletion { wc }))
    }
}

impl fmt::Debug for BasicPoller<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BasicPoller").field("left", &self.completions.len()).finish()
    }
}

/// One completion.
#[derive(Clone, Copy)]
pub struct BasicWorkCompletion<'p> {
    wc: &'p ibv_wc,
}

impl BasicWorkCompletion<'_> {
    /// The request's number.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        self.wc.wr_id
    }

    /// Returns the request's status. If it is not success, only the status, [`wr_id`](Self::wr_id),
    /// [`qp_num`](Self::qp_num) and [`vendor_err`](Self::vendor_err) are valid.
    #[inline]
    pub fn status(&self) -> WorkCompletionStatus {
        WorkCompletionStatus::from_raw(self.wc.status.0)
    }

    /// The completed operation.
    #[inline]
    pub fn opcode(&self) -> WorkCompletionOperationType {
        WorkCompletionOperationType::from_raw(self.wc.opcode.0)
    }

    /// The vendor's error code.
    #[inline]
    pub fn vendor_err(&self) -> u32 {
        self.wc.vendor_err
    }

    /// The number of bytes that were received, read, or fetched by an atomic. It is unspecified for sends and writes.
    #[inline]
    pub fn byte_len(&self) -> u32 {
        self.wc.byte_len
    }

    /// The immediate data, in host byte order. It is valid if the completion has
    /// [`WorkCompletionFlags::WithImmediate`].
    #[inline]
    pub fn imm_data(&self) -> u32 {
        // SAFETY: both members of the union are `u32`, and the batch is initialised.
        u32::from_be(unsafe { self.wc.__bindgen_anon_1.imm_data })
    }

    /// The key that the peer invalidated. It is valid if the completion has [`WorkCompletionFlags::WithInvalidate`].
    #[inline]
    pub fn invalidated_rkey(&self) -> RemoteKey {
        // SAFETY: both members of the union are `u32`, and the batch is initialised.
        RemoteKey::from_raw(unsafe { self.wc.__bindgen_anon_1.invalidated_rkey })
    }

    /// The number of the local queue pair.
    #[inline]
    pub fn qp_num(&self) -> u32 {
        self.wc.qp_num
    }

    /// The number of the sender's queue pair. It is valid only for datagrams.
    #[inline]
    pub fn src_qp(&self) -> u32 {
        self.wc.src_qp
    }

    /// Flags that describe the message and its valid fields.
    #[inline]
    pub fn wc_flags(&self) -> WorkCompletionFlags {
        WorkCompletionFlags::from_bits_retain(self.wc.wc_flags)
    }

    /// The sender's LID. It is valid only for datagrams.
    #[inline]
    pub fn slid(&self) -> u32 {
        self.wc.slid.into()
    }

    /// The service level. It is valid only for datagrams.
    #[inline]
    pub fn sl(&self) -> u8 {
        self.wc.sl
    }

    /// The low bits of the destination LID. They are valid only for datagrams.
    #[inline]
    pub fn dlid_path_bits(&self) -> u8 {
        self.wc.dlid_path_bits
    }

    /// The P_Key index of the message, for queue pair 1. Only basic completion queues provide this field.
    #[inline]
    pub fn pkey_index(&self) -> u16 {
        self.wc.pkey_index
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
}

impl fmt::Debug for BasicWorkCompletion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BasicWorkCompletion")
            .field("wr_id", &self.wr_id())
            .field("status", &self.status())
            .field("opcode", &self.opcode())
            .field("vendor_err", &self.vendor_err())
            .field("byte_len", &self.byte_len())
            .field("qp_num", &self.qp_num())
            .finish()
    }
}
