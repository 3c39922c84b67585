//! Building send requests, for queue pairs of every kind, and their flags.

use std::fmt;

use rdma_mummy_sys::ibv_send_flags as raw;

use super::data::{Nothing, Refused, SendData, Within};
use super::operation::{
    AtomicWrite, BindMemoryWindow, CompareSwap, Either, FetchAdd, Flush, FlushLevel, FlushPlacement, LocalInvalidate,
    Read, Send, SendImm, SendInv, SendOperation, SendTso, Write, WriteImm,
};
use super::{LocalBufferHandle, PostSendError, RefusalReason};
use crate::ibverbs::memory_region::RemoteKey;
use crate::ibverbs::memory_window::{BindInformation, MemoryWindow};
use crate::ibverbs::queue_pair::{Offers, Service};

/// A batch of send requests under construction. Dropping it takes the batch back.
pub trait PostSendGuard: SendSink + Sized {
    /// What requests of the queue pair look like.
    type Service: Service;

    /// Begins a request. `wr_id` comes back in its completion.
    #[inline]
    fn construct_wr(&mut self, wr_id: u64, flags: WorkRequestFlags) -> WorkRequestHandle<'_, Self> {
        WorkRequestHandle { guard: self, wr_id, flags: flags.bits() }
    }

    /// Hands the batch to the device: `ibv_wr_complete`, or `ibv_post_send`. An empty batch is no error and touches
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`PostSendError`] tells which request is at fault where that is known, and how many were posted.
    #[doc(alias = "ibv_post_send")]
    #[doc(alias = "ibv_wr_complete")]
    fn post(self) -> Result<(), PostSendError>;
}

/// A guard whose batch may refer to what lives for `'q`, until it is posted: address handles, memory windows, packet headers.
///
/// Sealed.
///
/// # Safety
///
/// The guard does not use its batch once `'q` has ended.
pub unsafe trait HoldsFor<'q>: PostSendGuard {}

/// Where finished requests go; only this crate's guards are one.
pub trait SendSink {
    /// Adds a request to the batch.
    ///
    /// # Safety
    ///
    /// - Gathered memory is as [`setup_sge`](super::SetScatterGatherEntry::setup_sge) asks.
    /// - The service of the queue pair takes such requests ([`Offers`]).
    #[doc(hidden)]
    unsafe fn emit<O: SendOperation, D: SendData>(&mut self, wr_id: u64, flags: u32, operation: O, data: D);
}

/// A request whose operation is to be said. Dropped, it leaves no trace.
#[must_use = "a request without an operation and data is not posted"]
pub struct WorkRequestHandle<'g, G> {
    guard: &'g mut G,
    wr_id: u64,
    flags: u32,
}

impl<'g, G: PostSendGuard> WorkRequestHandle<'g, G> {
    /// `ibv_wr_send(qp)` — a message that takes a receive of the peer's.
    #[doc(alias = "ibv_wr_send")]
    #[inline]
    pub fn setup_send(self) -> LocalBufferHandle<'g, G, Send> {
        self.with(Send)
    }

    /// `ibv_wr_send_imm(qp, imm_data)` — the same with 4 bytes that arrive in the peer's completion; host byte order.
    #[doc(alias = "ibv_wr_send_imm")]
    #[inline]
    pub fn setup_send_imm(self, imm_data: u32) -> LocalBufferHandle<'g, G, SendImm> {
        self.with(SendImm { imm_data })
    }

    /// [`setup_send_imm`](Self::setup_send_imm) if there is immediate data, else [`setup_send`](Self::setup_send).
    #[inline]
    pub fn setup_send_optional_imm(self, imm_data: Option<u32>) -> LocalBufferHandle<'g, G, Either<Send, SendImm>> {
        self.with(imm_data.map_or(Either::Left(Send), |imm_data| Either::Right(SendImm { imm_data })))
    }

    /// `ibv_wr_rdma_write(qp, rkey, remote_addr)` — writes into the peer's memory, which takes no notice.
    #[doc(alias = "ibv_wr_rdma_write")]
    #[inline]
    pub fn setup_write(self, rkey: impl Into<RemoteKey>, remote_addr: u64) -> LocalBufferHandle<'g, G, Write> {
        self.with(Write { rkey: rkey.into(), remote_addr })
    }

    /// `ibv_wr_rdma_write_imm(qp, rkey, remote_addr, imm_data)` — writes, then takes a receive of the peer's, whose
    /// completion has the 4 bytes; host byte order.
    #[doc(alias = "ibv_wr_rdma_write_imm")]
    #[inline]
    pub fn setup_write_imm(
        self,
        rkey: impl Into<RemoteKey>,
        remote_addr: u64,
        imm_data: u32,
    ) -> LocalBufferHandle<'g, G, WriteImm> {
        self.with(WriteImm { rkey: rkey.into(), remote_addr, imm_data })
    }

    /// [`setup_write_imm`](Self::setup_write_imm) if there is immediate data, else [`setup_write`](Self::setup_write).
    #[inline]
    pub fn setup_write_optional_imm(
        self,
        rkey: impl Into<RemoteKey>,
        remote_addr: u64,
        imm_data: Option<u32>,
    ) -> LocalBufferHandle<'g, G, Either<Write, WriteImm>> {
        let rkey = rkey.into();
        self.with(match imm_data {
            None => Either::Left(Write { rkey, remote_addr }),
            Some(imm_data) => Either::Right(WriteImm { rkey, remote_addr, imm_data }),
        })
    }

    /// `ibv_wr_rdma_read(qp, rkey, remote_addr)` — reads the peer's memory into local buffers.
    #[doc(alias = "ibv_wr_rdma_read")]
    #[inline]
    pub fn setup_read(self, rkey: impl Into<RemoteKey>, remote_addr: u64) -> LocalBufferHandle<'g, G, Read> {
        self.with(Read { rkey: rkey.into(), remote_addr })
    }

    /// `ibv_wr_atomic_cmp_swp(qp, rkey, remote_addr, compare, swap)` — replaces the peer's 8 bytes, aligned to 8, by
    /// `swap` if they are `compare`. Their old value arrives in the local buffer. Values in host byte order.
    #[doc(alias = "ibv_wr_atomic_cmp_swp")]
    #[inline]
    pub fn setup_atomic_compare_swap(
        self,
        rkey: impl Into<RemoteKey>,
        remote_addr: u64,
        compare: u64,
        swap: u64,
    ) -> LocalBufferHandle<'g, G, CompareSwap> {
        self.with(CompareSwap { rkey: rkey.into(), remote_addr, compare, swap })
    }

    /// `ibv_wr_atomic_fetch_add(qp, rkey, remote_addr, add)` — adds to the peer's 8 bytes, aligned to 8. Their old value
    /// arrives in the local buffer. Values in host byte order.
    #[doc(alias = "ibv_wr_atomic_fetch_add")]
    #[inline]
    pub fn setup_atomic_fetch_add(
        self,
        rkey: impl Into<RemoteKey>,
        remote_addr: u64,
        add: u64,
    ) -> LocalBufferHandle<'g, G, FetchAdd> {
        self.with(FetchAdd { rkey: rkey.into(), remote_addr, add })
    }

    /// `ibv_wr_send_inv(qp, invalidate_rkey)` — a message whose arrival invalidates a key of the peer's: that of a memory
    /// window of type 2, or of a region made for it.
    #[doc(alias = "ibv_wr_send_inv")]
    #[inline]
    pub fn setup_send_inv(self, invalidate_rkey: impl Into<RemoteKey>) -> LocalBufferHandle<'g, G, SendInv> {
        self.with(SendInv { invalidate_rkey: invalidate_rkey.into() })
    }

    /// `ibv_wr_send_tso(qp, hdr, hdr_sz, mss)` — a packet that the device cuts into segments of `mss` bytes, each behind a copy
    /// of `header`: of 14 bytes, which is an Ethernet header, to as many as the queue pair was built for
    /// ([`setup_max_tso_header`](crate::ibverbs::queue_pair::QueuePairBuilder::setup_max_tso_header)). mlx5's driver has a fault with
    /// some of more than 18 bytes: [`quirks`](crate::manual::quirks#all-drivers).
    #[doc(alias = "ibv_wr_send_tso")]
    #[inline]
    pub fn setup_send_tso<'q>(self, header: &'q [u8], mss: u16) -> LocalBufferHandle<'g, G, SendTso<'q>>
    where
        G: HoldsFor<'q>,
    {
        self.with(SendTso { header, mss })
    }

    /// `ibv_wr_atomic_write(qp, rkey, remote_addr, atomic_wr)` — replaces the peer's 8 bytes, aligned to 8, at once: nobody
    /// sees half of them. The bytes are copied into the request. A basic queue pair takes them as inline data.
    #[doc(alias = "ibv_wr_atomic_write")]
    #[inline]
    pub fn setup_atomic_write(self, rkey: impl Into<RemoteKey>, remote_addr: u64, value: [u8; 8])
    where
        G::Service: Offers<AtomicWrite>,
    {
        let operation = AtomicWrite { rkey: rkey.into(), remote_addr, value };
        // SAFETY: no memory is named.
        unsafe { self.emit(operation, Within(&value)) }
    }

    /// `ibv_wr_flush(qp, rkey, remote_addr, len, type, level)` — completes when what was written to the peer's memory before
    /// has come as far as `placement` says. Only extended queue pairs have it.
    #[doc(alias = "ibv_wr_flush")]
    #[inline]
    pub fn setup_flush(
        self,
        rkey: impl Into<RemoteKey>,
        remote_addr: u64,
        length: usize,
        placement: FlushPlacement,
        level: FlushLevel,
    ) where
        G::Service: Offers<Flush>,
    {
        let operation = Flush { rkey: rkey.into(), remote_addr, length, placement, level };
        // SAFETY: no memory is named.
        unsafe { self.emit(operation, Nothing) }
    }

    /// `ibv_wr_local_inv(qp, invalidate_rkey)` — invalidates a key of this side: that of a memory window of type 2, or of a
    /// region made for it. Requests of peers that name it fail from then on.
    #[doc(alias = "ibv_wr_local_inv")]
    #[inline]
    pub fn setup_local_inv(self, rkey: impl Into<RemoteKey>)
    where
        G::Service: Offers<LocalInvalidate>,
    {
        let operation = LocalInvalidate { rkey: rkey.into() };
        // SAFETY: no memory is named.
        unsafe { self.emit(operation, Nothing) }
    }

    /// `ibv_wr_bind_mw(qp, mw, rkey, bind_info)` — binds a memory window of type 2 to a range of a region; `rkey` is its new
    /// key, [`inc_rkey`](RemoteKey::inc_rkey) of the one before, which the window is told by
    /// [`set_rkey`](MemoryWindow::set_rkey).
    ///
    /// The window is the batch's alone until that is posted: irdma's driver writes the new key into it.
    ///
    /// A window of type 1 or of another device, a region of another domain, or nothing to bind to, is refused when the batch is
    /// posted.
    #[doc(alias = "ibv_wr_bind_mw")]
    #[inline]
    pub fn setup_bind_mw<'q>(self, window: &'q mut MemoryWindow, rkey: impl Into<RemoteKey>, bind: BindInformation<'q>)
    where
        G: HoldsFor<'q>,
        G::Service: Offers<BindMemoryWindow<'q>>,
    {
        let operation = BindMemoryWindow { window, rkey: rkey.into(), bind };
        // SAFETY: no memory is named for the device's own use; what peers may do with the region was promised when it was
        // registered (`reg_mr`, MemoryWindowBind).
        unsafe { self.emit(operation, Nothing) }
    }

    #[inline]
    fn with<O: SendOperation>(self, operation: O) -> LocalBufferHandle<'g, G, O> {
        LocalBufferHandle::new(self, operation)
    }

    /// Puts the request into the batch.
    ///
    /// # Safety
    ///
    /// As [`setup_sge`](super::SetScatterGatherEntry::setup_sge).
    #[inline]
    pub(super) unsafe fn emit<O: SendOperation, D: SendData>(self, operation: O, data: D)
    where
        G::Service: Offers<O>,
    {
        let flags = self.flags & !raw::IBV_SEND_INLINE.0;
        if flags != self.flags && data.names_memory() {
            return self.refuse(operation, RefusalReason::InlineMemory);
        }
        // SAFETY: the caller's promise, and the service offers the operation.
        unsafe { self.guard.emit(self.wr_id, flags, operation, data) }
    }

    #[cold]
    #[inline(never)]
    fn refuse<O: SendOperation>(self, operation: O, reason: RefusalReason)
    where
        G::Service: Offers<O>,
    {
        // SAFETY: no memory is named, and the service offers the operation.
        unsafe { self.guard.emit(self.wr_id, 0, operation, Refused(reason)) }
    }
}

impl<G> fmt::Debug for WorkRequestHandle<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkRequestHandle").field("wr_id", &self.wr_id).finish_non_exhaustive()
    }
}

bitflags::bitflags! {
    /// `enum ibv_send_flags`: how a send request is to be processed.
    #[doc(alias = "ibv_send_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct WorkRequestFlags: u32 {
        /// Begins only when the reads and atomics before it are done.
        const Fence = raw::IBV_SEND_FENCE.0;
        /// Reports its completion. Without it, only a failure is reported; now and then a signaled request is needed so
        /// that the queue's entries become free.
        const Signaled = raw::IBV_SEND_SIGNALED.0;
        /// The peer's completion counts as solicited.
        const Solicited = raw::IBV_SEND_SOLICITED.0;
        /// Set by `setup_inline_data` itself. A request that has it and names registered memory is refused
        /// ([`InlineMemory`](super::RefusalReason::InlineMemory)).
        const Inline = raw::IBV_SEND_INLINE.0;
        /// The device computes the IP checksums. An extended queue pair for raw packets takes it once the queue pair was given
        /// an Ethernet port of a device with `RawIpChecksum`, and else refuses it.
        const IpChecksum = raw::IBV_SEND_IP_CSUM.0;
        // Later flags pass through.
        const _ = !0;
    }
}
