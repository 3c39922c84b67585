//! The last steps of a send request: its destination and its data.

use std::fmt;
use std::io::IoSlice;

use super::data::{Borrowed, Gather, Inline, InlineList, Single};
use super::operation::{Either, Send, SendImm, SendInv, SendOperation, Write, WriteImm};
use super::send::{PostSendGuard, WorkRequestHandle};
use super::{Addressed, DatagramAddress, HoldsFor, ScatterGatherEntry, SendAddress, SharedReceiveQueueNumber};
use crate::ffi::Sealed;
use crate::ibverbs::address::AddressHandle;
use crate::ibverbs::memory_region::LocalKey;
use crate::ibverbs::queue_pair::{Offers, ReadsDataAlone};

/// A request whose data must be set next. Setting the data adds the request to the batch. Dropping the handle adds
/// nothing to the batch.
#[must_use = "a request without data is not posted"]
pub struct LocalBufferHandle<'g, G, O> {
    request: WorkRequestHandle<'g, G>,
    operation: O,
}

impl<'g, G: PostSendGuard, O: SendOperation> LocalBufferHandle<'g, G, O> {
    #[inline]
    pub(super) fn new(request: WorkRequestHandle<'g, G>, operation: O) -> Self {
        Self { request, operation }
    }

    /// `ibv_wr_set_ud_addr(qp, ah, remote_qpn, remote_qkey)` — sets the destination of a datagram: the path, the number
    /// of the peer's queue pair, and the Q_Key of that queue pair. If the highest bit of the Q_Key is set, the device
    /// sends the Q_Key of the local queue pair instead. Soft-RoCE sends the given Q_Key unchanged.
    ///
    /// Posting returns an error if the handle belongs to another device. Keep the handle until the request completes.
    /// Some devices (soft-RoCE) resolve the handle only when they send, so the datagram may fail if the handle was
    /// dropped.
    ///
    /// # References
    ///
    /// [ibv_wr_post(3)](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html)
    #[doc(alias = "ibv_wr_set_ud_addr")]
    #[inline]
    pub fn setup_ud_addr<'q>(
        self,
        ah: &'q AddressHandle,
        remote_qpn: u32,
        remote_qkey: u32,
    ) -> LocalBufferHandle<'g, G, Addressed<O, DatagramAddress<'q, true>>>
    where
        G: HoldsFor<'q>,
    {
        self.at(DatagramAddress::new(ah, remote_qpn, remote_qkey))
    }

    /// Sets the destination like [`setup_ud_addr`](Self::setup_ud_addr), but does not check that the handle belongs to
    /// the same device.
    ///
    /// # Safety
    ///
    /// `ah` belongs to the queue pair's device context.
    #[inline]
    pub unsafe fn setup_ud_addr_unchecked<'q>(
        self,
        ah: &'q AddressHandle,
        remote_qpn: u32,
        remote_qkey: u32,
    ) -> LocalBufferHandle<'g, G, Addressed<O, DatagramAddress<'q, false>>>
    where
        G: HoldsFor<'q>,
    {
        self.at(DatagramAddress::new(ah, remote_qpn, remote_qkey))
    }

    /// `ibv_wr_set_xrc_srqn(qp, remote_srqn)` — sets the number of the peer's shared receive queue, 24 bits, for an XRC
    /// request.
    #[doc(alias = "ibv_wr_set_xrc_srqn")]
    #[inline]
    pub fn setup_xrc_srqn(self, remote_srqn: u32) -> LocalBufferHandle<'g, G, Addressed<O, SharedReceiveQueueNumber>> {
        self.at(SharedReceiveQueueNumber(remote_srqn))
    }

    /// Sets the destination, for services of vendors. Data that the address borrows outlives the batch.
    #[inline]
    #[cfg_attr(not(feature = "mlx5"), expect(dead_code, reason = "mlx5 uses it"))]
    pub(crate) fn setup_address<'q, A: SendAddress + 'q>(self, address: A) -> LocalBufferHandle<'g, G, Addressed<O, A>>
    where
        G: HoldsFor<'q>,
    {
        self.at(address)
    }

    #[inline]
    fn at<A: SendAddress>(self, address: A) -> LocalBufferHandle<'g, G, Addressed<O, A>> {
        LocalBufferHandle { request: self.request, operation: Addressed::new(self.operation, address) }
    }

    /// `ibv_wr_set_sge(qp, lkey, addr, length)` — sets one range of registered memory.
    ///
    /// # Safety
    ///
    /// The contract of [`SetScatterGatherEntry::setup_sge`] applies.
    #[doc(alias = "ibv_wr_set_sge")]
    #[inline]
    pub unsafe fn setup_sge(self, lkey: impl Into<LocalKey>, addr: u64, length: u32)
    where
        G::Service: Offers<O>,
    {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { self.request.emit(self.operation, Single(ScatterGatherEntry::new(lkey.into(), addr, length))) }
    }

    /// `ibv_wr_set_sge_list(qp, num_sge, sg_list)` — sets several ranges of registered memory, in order.
    ///
    /// # Safety
    ///
    /// The contract of [`SetScatterGatherEntry::setup_sge`] applies to each entry.
    #[doc(alias = "ibv_wr_set_sge_list")]
    #[inline]
    pub unsafe fn setup_sge_list(self, list: &[ScatterGatherEntry])
    where
        G::Service: Offers<O>,
    {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { self.request.emit(self.operation, Gather(list)) }
    }

    /// `ibv_wr_set_inline_data(qp, addr, length)` — copies bytes into the request; see [`SetInlineData`].
    #[doc(alias = "ibv_wr_set_inline_data")]
    #[inline]
    pub fn setup_inline_data(self, data: &[u8])
    where
        G::Service: Offers<O>,
        O: CarriesInlineData,
    {
        // SAFETY: the bytes are read before the call returns.
        unsafe { self.request.emit(self.operation, Inline(data)) }
    }

    /// Sets inline data that outlives the batch. On a basic queue pair this saves one copy, because only the driver
    /// copies the data, when the batch is posted. On an extended queue pair there is no difference. Raw packets do not
    /// support this, because drivers read beyond the end of short packets.
    #[inline]
    pub fn setup_borrowed_inline_data<'q>(self, data: &'q [u8])
    where
        G: HoldsFor<'q>,
        G::Service: Offers<O> + ReadsDataAlone,
        O: CarriesInlineData,
    {
        // SAFETY: the bytes do not change until the batch is posted or discarded, and the driver reads no other bytes.
        unsafe { self.request.emit(self.operation, Borrowed(data)) }
    }

    /// `ibv_wr_set_inline_data_list(qp, num_buf, buf_list)` — copies several pieces into the request, in order.
    #[doc(alias = "ibv_wr_set_inline_data_list")]
    #[inline]
    pub fn setup_inline_data_list(self, list: &[IoSlice<'_>])
    where
        G::Service: Offers<O>,
        O: CarriesInlineData,
    {
        // SAFETY: the bytes are read before the call returns.
        unsafe { self.request.emit(self.operation, InlineList(list)) }
    }

    /// Sets no data, so the message has length zero.
    #[inline]
    pub fn setup_no_data(self)
    where
        G::Service: Offers<O>,
    {
        // SAFETY: an empty list names no memory.
        unsafe { self.request.emit(self.operation, Gather(&[])) }
    }
}

/// Sets registered memory as the data of a request. Generic code uses this trait.
pub trait SetScatterGatherEntry: Sealed {
    /// `ibv_wr_set_sge(qp, lkey, addr, length)` — sets one range of registered memory.
    ///
    /// # Safety
    ///
    /// The following must hold from the post until the request's completion has been polled, or until the queue pair
    /// has been reset or destroyed. It must also hold after a failed post if its error does not state how many requests
    /// were posted ([`posted`](super::PostError::posted) is `None`).
    ///
    /// - The `length` bytes at `addr` stay allocated, and the region of `lkey`, which contains them, stays registered.
    /// - If the device only reads them (sends, writes), no code writes them.
    /// - If the device writes them (receives, reads, atomics), no code reads or writes them, and no reference to them
    ///   exists.
    /// - On a queue pair for raw packets, the first entry contains at least the Ethernet header, in memory that the
    ///   processor can read, because drivers copy the header when a request is posted.
    ///
    /// Several requests may name the same bytes if the program accepts any result. For example, a ping-pong may post
    /// many receives into one buffer, and these receives then overwrite each other's data.
    ///
    /// A receive in a shared receive queue ends with its completion, or when the shared receive queue is destroyed.
    /// That queue is destroyed after its owner, its last queue pair, and its completion queue (XRC, tag matching) were
    /// dropped. Resetting or destroying a queue pair ends only the receive that this queue pair had begun.
    ///
    /// A request without [`WorkRequestFlags::Signaled`](super::WorkRequestFlags::Signaled) has completed when a later
    /// signaled request on the same queue has completed.
    #[doc(alias = "ibv_wr_set_sge")]
    unsafe fn setup_sge(self, lkey: impl Into<LocalKey>, addr: u64, length: u32);

    /// `ibv_wr_set_sge_list(qp, num_sge, sg_list)` — sets several ranges of registered memory, in order.
    ///
    /// # Safety
    ///
    /// The contract of [`setup_sge`](Self::setup_sge) applies to each entry.
    #[doc(alias = "ibv_wr_set_sge_list")]
    unsafe fn setup_sge_list(self, list: &[ScatterGatherEntry]);
}

impl<G, O> Sealed for LocalBufferHandle<'_, G, O> {}

impl<G: PostSendGuard, O: SendOperation> SetScatterGatherEntry for LocalBufferHandle<'_, G, O>
where
    G::Service: Offers<O>,
{
    #[inline]
    unsafe fn setup_sge(self, lkey: impl Into<LocalKey>, addr: u64, length: u32) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { LocalBufferHandle::setup_sge(self, lkey, addr, length) }
    }

    #[inline]
    unsafe fn setup_sge_list(self, list: &[ScatterGatherEntry]) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { LocalBufferHandle::setup_sge_list(self, list) }
    }
}

/// Copies bytes from any memory into a request. The memory can be reused after the call. Generic code uses this trait.
pub trait SetInlineData: Sealed {
    /// `ibv_wr_set_inline_data(qp, addr, length)` — copies bytes into the request. Their number must not exceed the
    /// queue pair's `max_inline_data`. Only sends and writes support this.
    #[doc(alias = "ibv_wr_set_inline_data")]
    fn setup_inline_data(self, data: &[u8]);

    /// `ibv_wr_set_inline_data_list(qp, num_buf, buf_list)` — copies several pieces into the request, in order.
    #[doc(alias = "ibv_wr_set_inline_data_list")]
    fn setup_inline_data_list(self, list: &[IoSlice<'_>]);
}

impl<G: PostSendGuard, O: CarriesInlineData> SetInlineData for LocalBufferHandle<'_, G, O>
where
    G::Service: Offers<O>,
{
    #[inline]
    fn setup_inline_data(self, data: &[u8]) {
        LocalBufferHandle::setup_inline_data(self, data);
    }

    #[inline]
    fn setup_inline_data_list(self, list: &[IoSlice<'_>]) {
        LocalBufferHandle::setup_inline_data_list(self, list);
    }
}

/// An operation that supports inline data.
#[diagnostic::on_unimplemented(message = "requests of `{Self}` do not support inline data: only sends and writes do")]
pub trait CarriesInlineData: SendOperation {}

impl CarriesInlineData for Send {}
impl CarriesInlineData for SendImm {}
impl CarriesInlineData for SendInv {}
impl CarriesInlineData for Write {}
impl CarriesInlineData for WriteImm {}
impl<A: CarriesInlineData, B: CarriesInlineData> CarriesInlineData for Either<A, B> {}
impl<O: CarriesInlineData, A: SendAddress> CarriesInlineData for Addressed<O, A> {}

impl<G, O: fmt::Debug> fmt::Debug for LocalBufferHandle<'_, G, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalBufferHandle")
            .field("request", &self.request)
            .field("operation", &self.operation)
            .finish_non_exhaustive()
    }
}
