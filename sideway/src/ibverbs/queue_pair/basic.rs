//! The queue pair that `ibv_create_qp` creates. Requests are posted to it with `ibv_post_send`.

use std::marker::PhantomData;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_qp, ibv_qp_cap, ibv_send_wr};

use super::common::AsQueuePairCore;
use super::pair::SendQueue;
use super::{Connected, QueuePairCore, Service};
use crate::error::VerbError;
use crate::ibverbs::work_request::{
    BasicSlot, Batch, HoldsFor, PACKET_START, PostSendError, PostSendGuard, Requests, Ring, SendData, SendOperation,
    SendSink, no_room,
};

pub(super) const VERB: &str = "ibv_post_send";

/// The send queue of a basic queue pair. One thread at a time can post to it.
#[derive(Debug)]
pub struct BasicSendQueue<T = Connected> {
    pub(super) qp: *mut ibv_qp,
    pub(super) list: SendList,
    pub(super) core: Arc<QueuePairCore>,
    service: PhantomData<T>,
}

/// Requests with their entries and their inline bytes.
#[derive(Debug)]
pub(super) struct SendList {
    pub(super) requests: Requests<ibv_send_wr>,
    /// The inline data of the requests, with `max_inline` bytes for each request.
    #[expect(dead_code, reason = "reached by `inline_origin`")]
    inline: Ring<u8>,
    /// The origin of the inline bytes. The inline bytes of the request with the [number](Batch::last_number) N start N
    /// × `max_inline` bytes after this address.
    inline_origin: *mut u8,
    pub(super) max_inline: usize,
}

impl SendList {
    /// Allocates `max_wr` requests. Each has space for up to `max_sge` entries and `max_inline` bytes.
    pub(super) fn new(verb: &'static str, max_wr: u32, max_sge: u32, max_inline: usize) -> Result<Self, VerbError> {
        let requests = Requests::new(verb, max_wr, max_sge)?;
        // For raw packets, drivers always read a fixed number of bytes at the start, even if the packet is shorter.
        let inline = (max_wr as usize)
            .checked_mul(max_inline)
            .and_then(|bytes| bytes.checked_add(PACKET_START))
            .and_then(|bytes| Ring::new(0, bytes));
        let inline = inline
            .ok_or_else(|| no_room(verb, format!("{max_inline} bytes of inline data for each of {max_wr} requests")))?;
        let inline_origin = inline.at(0).wrapping_sub(requests.first_number().wrapping_mul(max_inline));
        Ok(Self { requests, inline, inline_origin, max_inline })
    }

    /// Starts a batch for the queue pair of `core`.
    #[inline]
    pub(super) fn batch<'q, T>(&'q mut self, core: &'q QueuePairCore) -> BasicPostSendGuard<'q, T> {
        BasicPostSendGuard {
            core,
            batch: self.requests.batch(),
            inline_origin: self.inline_origin,
            max_inline: self.max_inline,
            service: PhantomData,
        }
    }
}

// SAFETY: the queue owns its requests. Any thread may post to a queue pair, and `&mut` permits only one thread at a
// time.
unsafe impl<T: Service> Send for BasicSendQueue<T> {}
// SAFETY: a shared reference to the send queue only gives access to the core, which is `Sync`.
unsafe impl<T: Service> Sync for BasicSendQueue<T> {}

impl<T: Service> BasicSendQueue<T> {
    /// Allocates as many requests, entries and inline bytes as `cap` states.
    ///
    /// # Safety
    ///
    /// The queue pair has the service `T`, and has no other send queue object.
    pub(super) unsafe fn new(
        verb: &'static str,
        core: &Arc<QueuePairCore>,
        cap: &ibv_qp_cap,
    ) -> Result<Self, VerbError> {
        let list = SendList::new(verb, cap.max_send_wr, cap.max_send_sge, cap.max_inline_data as usize)?;
        Ok(Self { qp: core.raw(), list, core: Arc::clone(core), service: PhantomData })
    }
}

impl<T: Service> SendQueue for BasicSendQueue<T> {
    type Service = T;
    type Guard<'q> = BasicPostSendGuard<'q, T>;

    #[inline]
    fn start_post_send(&mut self) -> BasicPostSendGuard<'_, T> {
        self.list.batch(&self.core)
    }
}

impl<T: Service> AsQueuePairCore for BasicSendQueue<T> {
    fn core(&self) -> &Arc<QueuePairCore> {
        &self.core
    }
}

/// A batch of sends under construction. Dropping it discards the batch.
#[derive(Debug)]
pub struct BasicPostSendGuard<'q, T = Connected> {
    core: &'q QueuePairCore,
    pub(super) batch: Batch<'q, ibv_send_wr>,
    inline_origin: *mut u8,
    max_inline: usize,
    service: PhantomData<T>,
}

impl<T> BasicPostSendGuard<'_, T> {
    /// The queue pair.
    pub(super) fn qp(&self) -> *mut ibv_qp {
        self.core.raw()
    }
}

// SAFETY: only `post` uses the batch, and it consumes the guard. Requests that remain in memory after that are
// overwritten before they are read.
unsafe impl<'q, T: Service> HoldsFor<'q> for BasicPostSendGuard<'q, T> {}

impl<T: Service> SendSink for BasicPostSendGuard<'_, T> {
    #[inline]
    unsafe fn emit<O: SendOperation, D: SendData>(&mut self, wr_id: u64, flags: u32, operation: O, data: D) {
        // Data that consists of one entry needs no further check, because the request has space for one entry or is
        // refused.
        let place = if D::ONE_ENTRY { self.batch.reserve_with_entry(wr_id) } else { self.batch.reserve(wr_id) };
        let Some(wr) = place else { return };
        if O::IS_ATOMIC_WRITE
            && let Some(reason) = self.core.refuses_atomic_write()
        {
            return self.batch.refuse(wr_id, reason);
        }
        // SAFETY: the request exists with its entries and its inline bytes, and `&mut self` excludes other users.
        let written = unsafe {
            (*wr).wr_id = wr_id;
            (*wr).send_flags = flags | D::BASIC_FLAGS;
            operation.write(&mut *wr, self.core.raw()).and_then(|()| {
                data.write(BasicSlot {
                    wr,
                    sges: (*wr).sg_list,
                    max_sge: self.batch.max_sge(),
                    inline: self.inline_origin.wrapping_add(self.batch.last_number().wrapping_mul(self.max_inline)),
                    max_inline: self.max_inline,
                })
            })
        };
        match written {
            Ok(()) => self.batch.accept(),
            Err(reason) => self.batch.refuse(wr_id, reason),
        }
    }
}

impl<T: Service> PostSendGuard for BasicPostSendGuard<'_, T> {
    type Service = T;

    #[inline]
    fn post(self) -> Result<(), PostSendError> {
        // SAFETY: the queue pair is live as long as the queue that the batch borrows, and the list stays valid during
        // the call.
        self.batch.post(VERB, |first, bad| unsafe { sys::ibv_post_send(self.core.raw(), first, bad) })
    }
}
