//! Lists of sends that are built once and posted many times.

use std::marker::PhantomData;
use std::sync::Arc;
use std::{fmt, ptr};

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_qp, ibv_send_flags, ibv_send_wr, ibv_wr_opcode as opcode};

use super::basic::{SendList, VERB};
use super::{BasicPostSendGuard, BasicSendQueue, Connected, QueuePairCore, Service};
use crate::error::VerbError;
use crate::ibverbs::address::AddressHandle;
use crate::ibverbs::memory_window::{BindInformation, MemoryWindow};
use crate::ibverbs::work_request::{
    HoldsFor, PostSendError, PostSendGuard, RefusalReason, SendData, SendOperation, SendSink, no_room,
    refused_by_driver,
};

impl<T: Service> BasicSendQueue<T> {
    /// Allocates a list of up to `requests` requests, which is built once and posted many times
    /// ([`post_prepared`](Self::post_prepared)). Each request of the list has space for as many entries and inline
    /// bytes as the requests of the queue.
    ///
    /// The list keeps the queue pair alive: until it is dropped, [`Pair::close`](super::Pair::close) fails with
    /// `EBUSY`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn prepare<'q>(&self, requests: usize) -> Result<PreparedSends<'q, T>, VerbError> {
        let max_wr = u32::try_from(requests).map_err(|_| no_room(VERB, format!("{requests} prepared requests")))?;
        // This conversion is lossless, because the value was created from 32 bits.
        let max_sge = self.list.requests.max_sge() as u32;
        let mut list = SendList::new(VERB, max_wr, max_sge, self.list.max_inline)?;
        list.requests
            .set_overflow(RefusalReason::Invalid("the list was prepared for fewer requests; prepare a longer one"));
        let first = list.requests.at(0);
        Ok(PreparedSends {
            first,
            len: 0,
            ready: ptr::null_mut(),
            list,
            core: Arc::clone(&self.core),
            holds: PhantomData,
        })
    }

    /// `ibv_post_send(qp, wr, bad_wr)` — posts a prepared list. The driver reads the list only during this call. So the
    /// program can change the list and post it again while the requests of the earlier post are outstanding.
    ///
    /// # Errors
    ///
    /// [`PostSendError`] names the failed request and the number of requests posted before it. The list is unchanged,
    /// and can be posted again as a whole. The call also fails if the list is not finished, or if another queue
    /// prepared it.
    ///
    /// # Safety
    ///
    /// For each request with registered memory, the conditions of
    /// [`setup_sge`](crate::ibverbs::work_request::SetScatterGatherEntry::setup_sge) hold from this post until the
    /// request completes.
    ///
    /// (Everything else that a request borrows outlives the list, which the types ensure. The driver checks that the
    /// queue has space.)
    ///
    /// # References
    ///
    /// [ibv_post_send(3)](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub unsafe fn post_prepared(&mut self, list: &PreparedSends<'_, T>) -> Result<(), PostSendError> {
        let mut bad = ptr::null_mut();
        if list.ready != self.qp {
            return Err(list.refuse());
        }
        // SAFETY: the queue pair lives as long as the core. The list was finished for this queue pair. The requests
        // point to data that outlives the list, and to registered memory, for which the caller upholds the contract.
        // Drivers only read the list.
        let ret = unsafe { sys::ibv_post_send(self.qp, list.first, &mut bad) };
        if ret == 0 { Ok(()) } else { Err(list.explain(ret, bad, &self.list)) }
    }
}

/// A list of sends that is built once and posted many times, like an array of `ibv_send_wr` that a C program keeps.
/// [`BasicSendQueue::prepare`] creates such lists.
///
/// Everything that the requests borrow (address handles, memory windows, packet headers, inline data) outlives `'q` and
/// therefore the list.
///
/// ```
/// use sideway::ibverbs::queue_pair::{BasicSendQueue, PostSendGuard};
/// use sideway::ibverbs::work_request::WorkRequestFlags;
///
/// /// Writes to `slots` slots of the peer, 8 in one post. `wait` returns when the write with this number has completed.
/// fn run(
///     send: &mut BasicSendQueue,
///     (rkey, remote_addr): (u32, u64),
///     slots: u64,
///     mut wait: impl FnMut(u64),
/// ) -> Result<(), Box<dyn std::error::Error>> {
///     let bytes = [7; 16];
///     let mut list = send.prepare(8)?;
///     let mut guard = list.build();
///     for wr_id in 0..8 {
///         // Only the last of 8 requests is signaled.
///         let flags = if wr_id == 7 { WorkRequestFlags::Signaled } else { WorkRequestFlags::empty() };
///         guard.construct_wr(wr_id, flags).setup_write(rkey, remote_addr).setup_inline_data(&bytes);
///     }
///     guard.finish()?;
///     for round in 0..slots / 8 {
///         for (index, mut request) in list.requests().enumerate() {
///             request.set_remote_addr(remote_addr + 16 * (8 * round + index as u64))?;
///         }
///         if let Some(mut last) = list.request(7) {
///             last.set_wr_id(round);
///         }
///         // SAFETY: the requests name no registered memory.
///         unsafe { send.post_prepared(&list)? };
///         wait(round);
///     }
///     Ok(())
/// }
/// ```
pub struct PreparedSends<'q, T = Connected> {
    /// The first request. The other requests follow it in memory.
    first: *mut ibv_send_wr,
    /// The number of requests in the list.
    len: usize,
    /// The queue pair if the list has requests, otherwise null. So `post_prepared` needs only one comparison to check
    /// both.
    ready: *mut ibv_qp,
    /// The memory of the requests.
    list: SendList,
    core: Arc<QueuePairCore>,
    /// The data that requests borrow lives for exactly `'q`.
    holds: PhantomData<(Invariant<'q>, T)>,
}

// Checks that any thread may use the objects to which requests point.
const _: fn() = || {
    fn check<T: Send>() {}
    check::<(&AddressHandle, &mut MemoryWindow, BindInformation<'_>, &[u8])>();
};
// SAFETY: the list owns its requests and shares the queue pair's core. The check above covers the objects to which
// requests point. Queue pairs that are confined to a thread do not give access to a send queue that could prepare a
// list.
unsafe impl<T: Service> Send for PreparedSends<'_, T> {}
// SAFETY: a shared reference to the list can only read it.
unsafe impl<T: Service> Sync for PreparedSends<'_, T> {}

impl<'q, T: Service> PreparedSends<'q, T> {
    /// Starts to build the list. Requests are added with `construct_wr`, as in a batch. The requests of an earlier
    /// build are removed.
    #[inline]
    pub fn build(&mut self) -> PrepareSendGuard<'_, 'q, T> {
        let Self { list, len, ready, core, .. } = self;
        (*len, *ready) = (0, ptr::null_mut());
        PrepareSendGuard { guard: list.batch(core), list: (len, ready), holds: PhantomData }
    }

    /// Returns a request of the list for changes, or `None` if the list has at most `index` requests.
    #[inline]
    pub fn request(&mut self, index: usize) -> Option<PreparedRequest<'_>> {
        if index >= self.len {
            return None;
        }
        // SAFETY: the request exists, and only the borrower of the list accesses it.
        Some(PreparedRequest { wr: unsafe { &mut *self.first.wrapping_add(index) } })
    }

    /// Returns all requests of the list for changes.
    pub fn requests(&mut self) -> impl Iterator<Item = PreparedRequest<'_>> {
        let first = self.first;
        // SAFETY: the requests exist, each is returned once, and only the borrower of the list accesses them.
        (0..self.len).map(move |index| PreparedRequest { wr: unsafe { &mut *first.wrapping_add(index) } })
    }

    #[cold]
    #[inline(never)]
    fn refuse(&self) -> PostSendError {
        let reason = RefusalReason::Invalid(if self.len == 0 {
            "the list has no requests; build and finish it first"
        } else {
            "the list was prepared by another queue; post it to that one"
        });
        PostSendError::from_list_refusal(VERB, reason)
    }

    #[cold]
    #[inline(never)]
    fn explain(&self, ret: c_int, bad: *mut ibv_send_wr, of: &SendList) -> PostSendError {
        let last = self.first.wrapping_add(self.len.saturating_sub(1));
        // SAFETY: a list that was posted has requests.
        unsafe { refused_by_driver(VERB, ret, (self.first, last), bad, of.requests.len()) }
    }
}

impl<T> fmt::Debug for PreparedSends<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedSends").field("len", &self.len).finish_non_exhaustive()
    }
}

/// A type that makes the lifetime `'q` invariant.
type Invariant<'q> = fn(&'q ()) -> &'q ();

/// A list under construction. If the guard is dropped before the list is finished, the list has no requests.
#[must_use = "a list that is not finished has no requests"]
pub struct PrepareSendGuard<'g, 'q, T = Connected> {
    guard: BasicPostSendGuard<'g, T>,
    /// The length and the queue pair of the list, which are set when the list is finished.
    list: (&'g mut usize, &'g mut *mut ibv_qp),
    holds: PhantomData<Invariant<'q>>,
}

impl<T: Service> PrepareSendGuard<'_, '_, T> {
    /// Finishes the list, so that it can be posted. Does not call the device.
    ///
    /// # Errors
    ///
    /// [`PostSendError`] names the refused request and the reason. The list then has no requests.
    pub fn finish(self) -> Result<(), PostSendError> {
        let Self { guard, list: (len, ready), .. } = self;
        let (built, qp) = (guard.batch.len(), guard.qp());
        guard.batch.post(VERB, |_first, _bad| 0)?;
        if built > 0 {
            (*len, *ready) = (built, qp);
        }
        Ok(())
    }
}

// SAFETY: the list has exactly this lifetime. Only `post_prepared` uses its requests, and it borrows the list. After
// that, the requests are rewritten before they are used again.
unsafe impl<'q, T: Service> HoldsFor<'q> for PrepareSendGuard<'_, 'q, T> {}

impl<T: Service> SendSink for PrepareSendGuard<'_, '_, T> {
    #[inline]
    unsafe fn emit<O: SendOperation, D: SendData>(&mut self, wr_id: u64, flags: u32, operation: O, data: D) {
        // SAFETY: the caller upholds the contract.
        unsafe { self.guard.emit(wr_id, flags, operation, data) }
    }
}

impl<T: Service> PostSendGuard for PrepareSendGuard<'_, '_, T> {
    type Service = T;

    /// Finishes the list, like [`finish`](PrepareSendGuard::finish). This does not post the list; only
    /// [`post_prepared`](BasicSendQueue::post_prepared) does.
    #[inline]
    fn post(self) -> Result<(), PostSendError> {
        self.finish()
    }
}

impl<T> fmt::Debug for PrepareSendGuard<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrepareSendGuard").field("batch", &self.guard.batch).finish_non_exhaustive()
    }
}

/// A request of a finished list. It has setters for the fields that may change between two posts.
pub struct PreparedRequest<'l> {
    wr: &'l mut ibv_send_wr,
}

impl PreparedRequest<'_> {
    /// Sets the number that identifies the request in its completion.
    #[inline]
    pub fn set_wr_id(&mut self, wr_id: u64) -> &mut Self {
        self.wr.wr_id = wr_id;
        self
    }

    /// Sets whether the request reports its completion
    /// ([`Signaled`](crate::ibverbs::work_request::WorkRequestFlags::Signaled)).
    #[inline]
    pub fn set_signaled(&mut self, is_signaled: bool) -> &mut Self {
        const SIGNALED: u32 = ibv_send_flags::IBV_SEND_SIGNALED.0;
        let others = self.wr.send_flags & !SIGNALED;
        self.wr.send_flags = if is_signaled { others | SIGNALED } else { others };
        self
    }

    /// Sets the remote address of a write, read or atomic.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the operation has no remote address.
    #[inline]
    pub fn set_remote_addr(&mut self, remote_addr: u64) -> Result<&mut Self, VerbError> {
        // Each operation is one bit of a mask, so that one test is sufficient. The remote address of an atomic has the
        // same offset in the struct as that of a write.
        const HAVE: u32 = 1 << opcode::IBV_WR_RDMA_WRITE.0
            | 1 << opcode::IBV_WR_RDMA_WRITE_WITH_IMM.0
            | 1 << opcode::IBV_WR_RDMA_READ.0
            | 1 << opcode::IBV_WR_ATOMIC_WRITE.0
            | 1 << opcode::IBV_WR_ATOMIC_CMP_AND_SWP.0
            | 1 << opcode::IBV_WR_ATOMIC_FETCH_AND_ADD.0;
        if HAVE >> (self.wr.opcode.0 & 31) & 1 == 0 {
            return Err(lacks("the operation has no remote address"));
        }
        self.wr.wr.rdma.remote_addr = remote_addr;
        Ok(self)
    }

    /// Sets the local address of the first entry. The key and the length of the entry do not change.
    ///
    /// # Safety
    ///
    /// [`setup_sge`](crate::ibverbs::work_request::SetScatterGatherEntry::setup_sge), or `setup_sge_list` with at least
    /// one entry, built the request. From the next post on, the changed entry meets the conditions of `setup_sge`.
    #[inline]
    pub unsafe fn set_local_addr(&mut self, addr: u64) -> &mut Self {
        // SAFETY: each request has space for at least one entry of its own.
        unsafe { (*self.wr.sg_list).addr = addr };
        self
    }

    /// Sets the immediate data of a send or write with immediate data, in host byte order.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the operation has no immediate data.
    #[inline]
    pub fn set_imm_data(&mut self, imm_data: u32) -> Result<&mut Self, VerbError> {
        match self.wr.opcode {
            opcode::IBV_WR_SEND_WITH_IMM | opcode::IBV_WR_RDMA_WRITE_WITH_IMM => {
                self.wr.__bindgen_anon_1.imm_data = imm_data.to_be();
                Ok(self)
            }
            _ => Err(lacks("the operation has no immediate data")),
        }
    }
}

#[cold]
#[inline(never)]
fn lacks(what: &'static str) -> VerbError {
    VerbError::invalid(VERB, what)
}

impl fmt::Debug for PreparedRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedRequest").field("wr_id", &self.wr.wr_id).finish_non_exhaustive()
    }
}
