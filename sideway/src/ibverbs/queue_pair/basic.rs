//! The queue pair of `ibv_create_qp`, posted to by `ibv_post_send`.

use std::fmt;
use std::mem;
use std::ptr;
use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_qp, ibv_qp_cap, ibv_send_wr, ibv_sge};

use super::common::AsQueuePairCore;
use super::{QueuePair, QueuePairCore};
use crate::ffi::errno_of;
use crate::ibverbs::work_request::{
    BasicSlot, FailedRequest, PostRecvGuard, PostSendError, PostSendGuard, ReceiveQueue, Refusal, RefusalReason, Ring,
    SendData, SendOperation, SendSink,
};

/// A queue pair of the basic verbs, which every device has.
#[derive(Debug)]
pub struct BasicQueuePair {
    send: BasicSendQueue,
    recv: ReceiveQueue,
}

/// The send queue of a basic queue pair, which one thread at a time posts to.
#[derive(Debug)]
pub struct BasicSendQueue {
    qp: *mut ibv_qp,
    /// Requests, each with its successor written in; only the last of a batch points nowhere, while it is posted.
    requests: Ring<ibv_send_wr>,
    #[expect(dead_code, reason = "the requests point into it")]
    sges: Ring<ibv_sge>,
    max_sge: usize,
    inline: Ring<u8>,
    max_inline: usize,
    core: Arc<QueuePairCore>,
}

// SAFETY: the queue owns its requests; posting to a queue pair is allowed from any thread, and `&mut` keeps it to one.
unsafe impl Send for BasicSendQueue {}
// SAFETY: a shared send queue gives access to the core alone.
unsafe impl Sync for BasicSendQueue {}

impl BasicQueuePair {
    pub(super) fn new(send: BasicSendQueue, recv: ReceiveQueue) -> Self {
        Self { send, recv }
    }

    /// Both queues at once, each for a thread of its own.
    pub fn queues(&mut self) -> (&mut BasicSendQueue, &mut ReceiveQueue) {
        (&mut self.send, &mut self.recv)
    }

    /// The two queues, each of which keeps the queue pair alive.
    pub fn split(self) -> (BasicSendQueue, ReceiveQueue) {
        (self.send, self.recv)
    }
}

impl QueuePair for BasicQueuePair {
    type Guard<'g> = BasicPostSendGuard<'g>;

    #[inline]
    fn start_post_send(&mut self) -> BasicPostSendGuard<'_> {
        self.send.start_post_send()
    }

    #[inline]
    fn start_post_recv(&mut self) -> PostRecvGuard<'_> {
        self.recv.start_post_recv()
    }
}

impl AsQueuePairCore for BasicQueuePair {
    fn core(&self) -> &Arc<QueuePairCore> {
        &self.send.core
    }
}

impl BasicSendQueue {
    /// For batches of as many requests, entries and bytes as was asked for.
    pub(super) fn new(core: &Arc<QueuePairCore>, cap: &ibv_qp_cap) -> Self {
        let max_wr = cap.max_send_wr as usize;
        let max_inline = cap.max_inline_data as usize;
        // Inline data is named by one entry, also where no other was asked for.
        let room = (cap.max_send_sge as usize).max((max_inline > 0).into());
        let sges = Ring::new(ibv_sge { addr: 0, length: 0, lkey: 0 }, max_wr * room);
        let inline = Ring::new(0, max_wr * max_inline);
        // SAFETY: all-zero is legal: the struct has integers and pointers alone.
        let requests = Ring::new(unsafe { mem::zeroed::<ibv_send_wr>() }, max_wr);
        for index in 0..max_wr {
            // SAFETY: the element exists and nobody else has its address.
            unsafe {
                (*requests.at(index)).sg_list = sges.at(index * room);
                (*requests.at(index)).next = requests.at(index + 1);
            }
        }
        let max_sge = cap.max_send_sge as usize;
        Self { qp: core.raw(), requests, sges, max_sge, inline, max_inline, core: Arc::clone(core) }
    }

    /// Begins a batch of sends.
    #[inline]
    pub fn start_post_send(&mut self) -> BasicPostSendGuard<'_> {
        BasicPostSendGuard { queue: self, len: 0, refusal: None }
    }

    pub(super) fn core(&self) -> &Arc<QueuePairCore> {
        &self.core
    }

    /// The places of one request.
    ///
    /// # Safety
    ///
    /// `index` is below the number of requests.
    #[inline]
    unsafe fn slot(&self, index: usize) -> BasicSlot {
        let wr = self.requests.at(index);
        BasicSlot {
            wr,
            // SAFETY: the request exists by the caller's promise; its list was written in by `new`.
            sges: unsafe { (*wr).sg_list },
            max_sge: self.max_sge,
            inline: self.inline.at(index * self.max_inline),
            max_inline: self.max_inline,
        }
    }
}

/// A batch of sends under construction. Dropping it takes the batch back.
pub struct BasicPostSendGuard<'q> {
    queue: &'q mut BasicSendQueue,
    len: usize,
    refusal: Option<Refusal>,
}

impl SendSink for BasicPostSendGuard<'_> {
    #[inline]
    unsafe fn emit<O: SendOperation, D: SendData>(&mut self, wr_id: u64, flags: u32, operation: O, data: D) {
        let index = self.len;
        if index >= self.queue.requests.len() {
            let limit = self.queue.requests.len();
            return self.refuse(wr_id, RefusalReason::BatchTooLong { limit });
        }
        // SAFETY: the request exists, and `&mut self` says that nobody else uses its places.
        let written = unsafe {
            let slot = self.queue.slot(index);
            (*slot.wr).wr_id = wr_id;
            (*slot.wr).send_flags = flags;
            operation.write(&mut *slot.wr);
            data.write(slot)
        };
        match written {
            Ok(()) => self.len = index + 1,
            Err(reason) => self.refuse(wr_id, reason),
        }
    }
}

impl PostSendGuard for BasicPostSendGuard<'_> {
    #[inline]
    fn post(self) -> Result<(), PostSendError> {
        if let Some(refusal) = self.refusal {
            return Err(PostSendError::from_refusal("ibv_post_send", refusal));
        }
        if self.len == 0 {
            return Ok(());
        }
        let first = self.queue.requests.at(0);
        let last = self.queue.requests.at(self.len - 1);
        let mut bad = ptr::null_mut();
        // SAFETY: the requests up to `last` exist (`emit` counted them) and form a list that ends there; the QP is live
        // as long as the core.
        let ret = unsafe {
            (*last).next = ptr::null_mut();
            let ret = sys::ibv_post_send(self.queue.qp, first, &mut bad);
            (*last).next = last.wrapping_add(1);
            ret
        };
        if ret == 0 { Ok(()) } else { Err(self.failure(ret, bad)) }
    }
}

impl BasicPostSendGuard<'_> {
    #[cold]
    fn refuse(&mut self, wr_id: u64, reason: RefusalReason) {
        let failed = FailedRequest { index: Some(self.len), wr_id };
        self.refusal.get_or_insert(Refusal { failed, reason });
    }

    #[cold]
    fn failure(&self, ret: c_int, bad: *const ibv_send_wr) -> PostSendError {
        let index = self.queue.requests.index_of(bad).filter(|&index| index < self.len);
        // SAFETY: the element exists.
        let failed = index.map(|index| unsafe {
            FailedRequest { index: Some(index), wr_id: (*self.queue.requests.at(index)).wr_id }
        });
        PostSendError::from_driver("ibv_post_send", errno_of(ret), failed, index.unwrap_or(0))
    }
}

impl fmt::Debug for BasicPostSendGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BasicPostSendGuard").field("len", &self.len).finish_non_exhaustive()
    }
}
