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

/// A batch of send requests under construction. Dropping it discards the batch.
pub trait PostSendGuard: SendSink + Sized {
    /// The service, which determines the fields of requests.
    type Service: Service;

    /// Starts a request. Its completion contains `wr_id`.
    #[inline]
    fn construct_wr(&mut self, wr_id: u64, flags: WorkRequestFlags) -> WorkRequestHandle<'_, Self> {
        WorkRequestHandle { guard: self, wr_id, flags: flags.bits() }
    }

    /// Posts the batch, with `ibv_wr_complete` or `ibv_post_send`. Posting an empty batch does nothing.
    ///
    /// # Errors
    ///
    /// [`PostSendError`] names the request at fault if known, and the number of requests posted.
    #[doc(alias = "ibv_post_send")]
    #[doc(alias = "ibv_wr_complete")]
    fn post(self) -> Result<(), PostSendError>;
}

/// A guard whose batch may refer to data that lives for `'q`, until the batch is posted. Such data are address handles,
/// memory windows and packet headers.
///
/// Sealed.
///
/// # Safety
///
/// The guard does not use its batch after `'q` has ended.
pub unsafe trait HoldsFor<'q>: PostSendGuard {}

/// The sink of finished requests. Only the guards of this crate implement this trait.
pub trait SendSink {
    /// Adds a request to the batch.
    ///
    /// # Safety
    ///
    /// - The contract of [`setup_sge`](super::SetScatterGatherEntry::setup_sge) holds for gathered memory.
    /// - The queue pair's service supports such requests ([`Offers`]).
    #[doc(hidden)]
    unsafe fn emit<O: SendOperation, D: SendData>(&mut self, wr_id: u64, flags: u32, operation: O, data: D);
}

/// A request whose operation must be set next. Dropping the handle adds nothing to the batch.
#[must_use = "a request without an operation and data is not posted"]
pub struct WorkRequestHandle<'g, G> {
    guard: &'g mut G,
    wr_id: u64,
    flags: u32,
}

impl<'g, G: PostSendGuard> WorkRequestHandle<'g, G> {
    /// `ibv_wr_send(qp)` — sends a message, which consumes a receive of the peer.
    #[doc(alias = "ibv_wr_send")]
    #[inline]
    pub fn setup_send(self) -> LocalBufferHandle<'g, G, Send> {
        self.with(Send)
    }

    /// `ibv_wr_send_imm(qp, imm_data)` — sends a message with 4 bytes of immediate data, which the peer's completion
    /// contains. They are in host byte order.
    #[doc(alias = "ibv_wr_send_imm")]
    #[inline]
    pub fn setup_send_imm(self, imm_data: u32) -> LocalBufferHandle<'g, G, SendImm> {
        self.with(SendImm { imm_data })
    }

    /// Calls [`setup_send_imm`](Self::setup_send_imm) if there is immediate data, otherwise
    /// [`setup_send`](Self::setup_send).
    #[inline]
    pub fn setup_send_optional_imm(self, imm_data: Option<u32>) -> LocalBufferHandle<'g, G, Either<Send, SendImm>> {
        self.with(imm_data.map_or(Either::Left(Send), |imm_data| Either::Right(SendImm { imm_data })))
    }

    /// `ibv_wr_rdma_write(qp, rkey, remote_addr)` — writes to the peer's memory, without notifying its program.
    #[doc(alias = "ibv_wr_rdma_write")]
    #[inline]
    pub fn setup_write(self, rkey: impl Into<RemoteKey>, remote_addr: u64) -> LocalBufferHandle<'g, G, Write> {
        self.with(Write { rkey: rkey.into(), remote_addr })
    }

    /// `ibv_wr_rdma_write_imm(qp, rkey, remote_addr, imm_data)` — writes to the peer's memory, then consumes a receive
    /// of the peer. The completion of that receive contains the 4 bytes of immediate data, which are in host byte
    /// order.
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

    /// Calls [`setup_write_imm`](Self::setup_write_imm) if there is immediate data, otherwise
    /// [`setup_write`](Self::setup_write).
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

    /// `ibv_wr_atomic_cmp_swp(qp, rkey, remote_addr, compare, swap)` — replaces 8 bytes of the peer, aligned to 8, with
    /// `swap` if they equal `compare`. The old value is written to the local buffer. All values are in host byte order.
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

    /// `ibv_wr_atomic_fetch_add(qp, rkey, remote_addr, add)` — adds `add` to 8 bytes of the peer, aligned to 8. Their
    /// old value is written to the local buffer. Both values are in host byte order.
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

    /// `ibv_wr_send_inv(qp, invalidate_rkey)` — sends a message that invalidates a key of the peer when it arrives. The
    /// key is that of a memory window of type 2, or of a region that was created for this use.
    #[doc(alias = "ibv_wr_send_inv")]
    #[inline]
    pub fn setup_send_inv(self, invalidate_rkey: impl Into<RemoteKey>) -> LocalBufferHandle<'g, G, SendInv> {
        self.with(SendInv { invalidate_rkey: invalidate_rkey.into() })
    }

    /// `ibv_wr_send_tso(qp, hdr, hdr_sz, mss)` — sends a packet that the device divides into segments of `mss` bytes.
    /// Each segment follows a copy of `header`. The header has at least the 14 bytes of an Ethernet header, and must
    /// not exceed the queue pair's limit
    /// ([`setup_max_tso_header`](crate::ibverbs::queue_pair::QueuePairBuilder::setup_max_tso_header)). The mlx5 driver
    /// has a fault with some headers of more than 18 bytes; see [`quirks`](crate::manual::quirks#all-drivers).
    #[doc(alias = "ibv_wr_send_tso")]
    #[inline]
    pub fn setup_send_tso<'q>(self, header: &'q [u8], mss: u16) -> LocalBufferHandle<'g, G, SendTso<'q>>
    where
        G: HoldsFor<'q>,
    {
        self.with(SendTso { header, mss })
    }

    /// `ibv_wr_atomic_write(qp, rkey, remote_addr, atomic_wr)` — atomically replaces 8 bytes of the peer, aligned to 8.
    /// The new bytes are copied into the request. A basic queue pair posts them as inline data.
    #[doc(alias = "ibv_wr_atomic_write")]
    #[inline]
    pub fn setup_atomic_write(self, rkey: impl Into<RemoteKey>, remote_addr: u64, value: [u8; 8])
    where
        G::Service: Offers<AtomicWrite>,
    {
        let operation = AtomicWrite { rkey: rkey.into(), remote_addr, value };
        // SAFETY: the request names no memory.
        unsafe { self.emit(operation, Within(&value)) }
    }

    /// `ibv_wr_flush(qp, rkey, remote_addr, len, type, level)` — completes when earlier writes to the peer's memory
    /// have reached `placement`. Only extended queue pairs support it.
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
        // SAFETY: the request names no memory.
        unsafe { self.emit(operation, Nothing) }
    }

    /// `ibv_wr_local_inv(qp, invalidate_rkey)` — invalidates a local key. The key is that of a memory window of type 2,
    /// or of a region that was created for this use. Later requests of peers with that key fail.
    #[doc(alias = "ibv_wr_local_inv")]
    #[inline]
    pub fn setup_local_inv(self, rkey: impl Into<RemoteKey>)
    where
        G::Service: Offers<LocalInvalidate>,
    {
        let operation = LocalInvalidate { rkey: rkey.into() };
        // SAFETY: the request names no memory.
        unsafe { self.emit(operation, Nothing) }
    }

    /// `ibv_wr_bind_mw(qp, mw, rkey, bind_info)` — binds a memory window of type 2 to a range of a region. `rkey` is
    /// the window's new key, which [`inc_rkey`](RemoteKey::inc_rkey) computes from the previous key. Also set the new
    /// key on the window, with [`set_rkey`](MemoryWindow::set_rkey).
    ///
    /// The batch borrows the window exclusively until the batch is posted, because the irdma driver writes the new key
    /// to the window.
    ///
    /// Posting returns an error if the window is of type 1 or belongs to another device, if the region belongs to
    /// another domain, or if the binding is empty.
    #[doc(alias = "ibv_wr_bind_mw")]
    #[inline]
    pub fn setup_bind_mw<'q>(self, window: &'q mut MemoryWindow, rkey: impl Into<RemoteKey>, bind: BindInformation<'q>)
    where
        G: HoldsFor<'q>,
        G::Service: Offers<BindMemoryWindow<'q>>,
    {
        let operation = BindMemoryWindow { window, rkey: rkey.into(), bind };
        // SAFETY: the request names no memory for local access. The contract of the registration covers the access of
        // peers (`reg_mr`, MemoryWindowBind).
        unsafe { self.emit(operation, Nothing) }
    }

    #[inline]
    fn with<O: SendOperation>(self, operation: O) -> LocalBufferHandle<'g, G, O> {
        LocalBufferHandle::new(self, operation)
    }

    /// Adds the request to the batch.
    ///
    /// # Safety
    ///
    /// The contract of [`setup_sge`](super::SetScatterGatherEntry::setup_sge) applies.
    #[inline]
    pub(super) unsafe fn emit<O: SendOperation, D: SendData>(self, operation: O, data: D)
    where
        G::Service: Offers<O>,
    {
        let flags = self.flags & !raw::IBV_SEND_INLINE.0;
        if flags != self.flags && data.names_memory() {
            return self.refuse(operation, RefusalReason::InlineMemory);
        }
        // SAFETY: by the contract of this function, and the service offers the operation.
        unsafe { self.guard.emit(self.wr_id, flags, operation, data) }
    }

    #[cold]
    #[inline(never)]
    fn refuse<O: SendOperation>(self, operation: O, reason: RefusalReason)
    where
        G::Service: Offers<O>,
    {
        // SAFETY: the request names no memory, and the service offers the operation.
        unsafe { self.guard.emit(self.wr_id, 0, operation, Refused(reason)) }
    }
}

impl<G> fmt::Debug for WorkRequestHandle<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkRequestHandle").field("wr_id", &self.wr_id).finish_non_exhaustive()
    }
}

bitflags::bitflags! {
    /// `enum ibv_send_flags`: how a send request is processed.
    #[doc(alias = "ibv_send_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct WorkRequestFlags: u32 {
        /// The request starts only after earlier reads and atomics have completed.
        const Fence = raw::IBV_SEND_FENCE.0;
        /// The completion of the request is reported. Without this flag, only a failure is reported. Signal a request
        /// from time to time, because only completions free the queue's entries.
        const Signaled = raw::IBV_SEND_SIGNALED.0;
        /// The peer's completion is solicited.
        const Solicited = raw::IBV_SEND_SOLICITED.0;
        /// `setup_inline_data` sets this flag. A request that has this flag and names registered memory is rejected
        /// ([`InlineMemory`](super::RefusalReason::InlineMemory)).
        const Inline = raw::IBV_SEND_INLINE.0;
        /// The device computes the IP checksums. An extended queue pair for raw packets accepts this flag only with an
        /// Ethernet port of a device that has `RawIpChecksum`.
        const IpChecksum = raw::IBV_SEND_IP_CSUM.0;
        // Unnamed bits are kept.
        const _ = !0;
    }
}
