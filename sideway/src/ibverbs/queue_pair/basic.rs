//! The queue pair of `ibv_create_qp`, posted to by `ibv_post_send`.

use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_qp, ibv_qp_cap, ibv_send_wr};

use super::common::AsQueuePairCore;
use super::{QueuePair, QueuePairCore};
use crate::error::{Errno, VerbError};
use crate::ibverbs::work_request::{
    BasicSlot, Batch, PostRecvGuard, PostSendError, PostSendGuard, ReceiveQueue, Requests, Ring, SendData,
    SendOperation, SendSink,
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
    requests: Requests<ibv_send_wr>,
    /// `max_inline` bytes for each request.
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

    /// `ibv_destroy_qp(qp)` — destroys the queue pair and reports, where dropping only logs.
    ///
    /// # Errors
    ///
    /// The driver's errno; the queue pair is leaked then.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn close(self) -> Result<(), VerbError> {
        let (send, recv) = self.split();
        let core = Arc::clone(send.core());
        drop((send, recv));
        core.close()
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
    pub(super) fn new(core: &Arc<QueuePairCore>, cap: &ibv_qp_cap) -> Result<Self, VerbError> {
        const VERB: &str = "ibv_create_qp";
        let requests = Requests::new(VERB, cap.max_send_wr, cap.max_send_sge)?;
        let max_inline = cap.max_inline_data as usize;
        let inline = (cap.max_send_wr as usize).checked_mul(max_inline).and_then(|bytes| Ring::new(0, bytes));
        let inline = inline.ok_or_else(|| VerbError::new(VERB, Errno::from_raw(libc::ENOMEM)))?;
        Ok(Self { qp: core.raw(), requests, inline, max_inline, core: Arc::clone(core) })
    }

    /// Begins a batch of sends.
    #[inline]
    pub fn start_post_send(&mut self) -> BasicPostSendGuard<'_> {
        BasicPostSendGuard {
            qp: self.qp,
            batch: self.requests.batch(),
            inline: &self.inline,
            max_inline: self.max_inline,
        }
    }

    pub(super) fn core(&self) -> &Arc<QueuePairCore> {
        &self.core
    }
}

/// A batch of sends under construction. Dropping it takes the batch back.
#[derive(Debug)]
pub struct BasicPostSendGuard<'q> {
    qp: *mut ibv_qp,
    batch: Batch<'q, ibv_send_wr>,
    inline: &'q Ring<u8>,
    max_inline: usize,
}

impl SendSink for BasicPostSendGuard<'_> {
    #[inline]
    unsafe fn emit<O: SendOperation, D: SendData>(&mut self, wr_id: u64, flags: u32, operation: O, data: D) {
        let Some((index, wr)) = self.batch.reserve(wr_id) else { return };
        // SAFETY: the request exists, with its list and its part of the inline bytes; `&mut self` says that nobody else
        // uses them.
        let written = unsafe {
            (*wr).wr_id = wr_id;
            (*wr).send_flags = flags;
            operation.write(&mut *wr);
            data.write(BasicSlot {
                wr,
                sges: (*wr).sg_list,
                max_sge: self.batch.max_sge(),
                inline: self.inline.at(index * self.max_inline),
                max_inline: self.max_inline,
            })
        };
        match written {
            Ok(()) => self.batch.accept(),
            Err(reason) => self.batch.refuse(wr_id, reason),
        }
    }
}

impl PostSendGuard for BasicPostSendGuard<'_> {
    #[inline]
    fn post(self) -> Result<(), PostSendError> {
        // SAFETY: the queue pair is live as long as the queue that the batch borrows, and the batch gives a list of
        // requests that stays for the call.
        self.batch.post("ibv_post_send", |first, bad| unsafe { sys::ibv_post_send(self.qp, first, bad) })
    }
}
