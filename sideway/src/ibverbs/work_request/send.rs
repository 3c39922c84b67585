//! Building send requests, for queue pairs of every kind.

use std::fmt;
use std::io::IoSlice;

use super::data::{Gather, Inline, InlineList, SendData, Single};
use super::operation::{CompareSwap, FetchAdd, Read, Send, SendImm, SendOperation, Write, WriteImm};
use super::{PostSendError, ScatterGatherEntry, WorkRequestFlags};
use crate::ibverbs::memory_region::{LocalKey, RemoteKey};

/// A batch of send requests under construction. Dropping it takes the batch back.
pub trait PostSendGuard: SendSink + Sized {
    /// Begins a request. `wr_id` comes back in its completion.
    #[inline]
    fn construct_wr(&mut self, wr_id: u64, flags: WorkRequestFlags) -> WorkRequestHandle<'_, Self> {
        WorkRequestHandle { guard: self, wr_id, flags: flags.without_inline() }
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

/// Where finished requests go; only this crate's guards are one.
pub trait SendSink {
    /// Adds a request to the batch.
    ///
    /// # Safety
    ///
    /// Gathered memory is as [`SetScatterGatherEntry::setup_sge`] asks.
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

    #[inline]
    fn with<O: SendOperation>(self, operation: O) -> LocalBufferHandle<'g, G, O> {
        LocalBufferHandle { request: self, operation }
    }
}

/// A request whose data is to be said, which puts it into the batch. Dropped, it leaves no trace.
#[must_use = "a request without data is not posted"]
pub struct LocalBufferHandle<'g, G, O> {
    request: WorkRequestHandle<'g, G>,
    operation: O,
}

impl<G: PostSendGuard, O: SendOperation> LocalBufferHandle<'_, G, O> {
    /// No data: a message of length zero.
    #[inline]
    pub fn setup_no_data(self) {
        // SAFETY: an empty list names no memory.
        unsafe { self.emit(Gather(&[])) }
    }

    /// # Safety
    ///
    /// As [`SetScatterGatherEntry::setup_sge`].
    #[inline]
    unsafe fn emit<D: SendData>(self, data: D) {
        let WorkRequestHandle { guard, wr_id, flags } = self.request;
        // SAFETY: the caller's promise.
        unsafe { guard.emit(wr_id, flags, self.operation, data) }
    }
}

/// Giving registered memory to a request.
pub trait SetScatterGatherEntry {
    /// `ibv_wr_set_sge(qp, lkey, addr, length)` — one range of registered memory.
    ///
    /// # Safety
    ///
    /// From the post, also one that failed and does not know how many it posted
    /// ([`posted`](super::PostError::posted) is `None`), until the request's completion has been polled, or the queue pair
    /// has been reset or destroyed:
    ///
    /// - the `length` bytes at `addr` stay allocated, and the region of `lkey` registered, with `addr` in it;
    /// - for what the device only reads (sends, writes), nobody writes them;
    /// - for what the device writes (receives, reads, atomics), nobody reads or writes them, and no reference to them is
    ///   held.
    ///
    /// Requests may name the same bytes where the program takes whatever the device leaves there: many receives into one
    /// buffer, as a ping-pong posts them, overwrite each other and harm nobody else.
    ///
    /// A receive of a shared queue ends with its completion, or when the shared queue itself was destroyed: with its owner and
    /// the last of its queue pairs. A queue pair that is reset or destroyed ends only the receive that it had begun.
    ///
    /// A request without [`WorkRequestFlags::Signaled`] has completed when a later signaled one of its queue has.
    #[doc(alias = "ibv_wr_set_sge")]
    unsafe fn setup_sge(self, lkey: impl Into<LocalKey>, addr: u64, length: u32);

    /// `ibv_wr_set_sge_list(qp, num_sge, sg_list)` — several ranges, one behind the other.
    ///
    /// # Safety
    ///
    /// As [`setup_sge`](Self::setup_sge), for each.
    #[doc(alias = "ibv_wr_set_sge_list")]
    unsafe fn setup_sge_list(self, list: &[ScatterGatherEntry]);
}

impl<G: PostSendGuard, O: SendOperation> SetScatterGatherEntry for LocalBufferHandle<'_, G, O> {
    #[inline]
    unsafe fn setup_sge(self, lkey: impl Into<LocalKey>, addr: u64, length: u32) {
        // SAFETY: the caller's promise.
        unsafe { self.emit(Single(ScatterGatherEntry::new(lkey.into(), addr, length))) }
    }

    #[inline]
    unsafe fn setup_sge_list(self, list: &[ScatterGatherEntry]) {
        // SAFETY: the caller's promise.
        unsafe { self.emit(Gather(list)) }
    }
}

/// Giving bytes that travel in the request itself: any memory will do, and it is free again at once.
pub trait SetInlineData {
    /// `ibv_wr_set_inline_data(qp, addr, length)` — at most as many bytes as the queue pair was built for
    /// (`max_inline_data`); only for sends and writes.
    #[doc(alias = "ibv_wr_set_inline_data")]
    fn setup_inline_data(self, data: &[u8]);

    /// `ibv_wr_set_inline_data_list(qp, num_buf, buf_list)` — several pieces, one behind the other.
    #[doc(alias = "ibv_wr_set_inline_data_list")]
    fn setup_inline_data_list(self, list: &[IoSlice<'_>]);
}

macro_rules! carries_inline_data {
    ($($Operation:ty),+) => {$(
        impl<G: PostSendGuard> SetInlineData for LocalBufferHandle<'_, G, $Operation> {
            #[inline]
            fn setup_inline_data(self, data: &[u8]) {
                // SAFETY: the bytes are read before the call returns.
                unsafe { self.emit(Inline(data)) }
            }

            #[inline]
            fn setup_inline_data_list(self, list: &[IoSlice<'_>]) {
                // SAFETY: the bytes are read before the call returns.
                unsafe { self.emit(InlineList(list)) }
            }
        }
    )+};
}

carries_inline_data!(Send, SendImm, Write, WriteImm);

impl<G> fmt::Debug for WorkRequestHandle<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkRequestHandle").field("wr_id", &self.wr_id).finish_non_exhaustive()
    }
}

impl<G, O: fmt::Debug> fmt::Debug for LocalBufferHandle<'_, G, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalBufferHandle")
            .field("wr_id", &self.request.wr_id)
            .field("operation", &self.operation)
            .finish_non_exhaustive()
    }
}
