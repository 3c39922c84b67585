//! The last steps of a send request: where it goes, and its data.

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

/// A request whose data is to be said, which puts it into the batch. Dropped, it leaves no trace.
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

    /// `ibv_wr_set_ud_addr(qp, ah, remote_qpn, remote_qkey)` — where the datagram goes: the way, the peer's queue pair and its
    /// Q_Key. A Q_Key with its highest bit set stands for the one of this side's queue pair, except with soft-RoCE, which sends
    /// it as it is.
    ///
    /// A handle of another device is refused when the batch is posted. It lives until then; a device may look it up only when
    /// it sends (soft-RoCE does), so that a datagram whose handle goes before its completion may fail.
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

    /// The same without a look at the handle's device, which costs a comparison.
    ///
    /// # Safety
    ///
    /// `ah` is of the device context that the queue pair is of.
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

    /// `ibv_wr_set_xrc_srqn(qp, remote_srqn)` — the shared receive queue of the peer, 24 bits, that an XRC request is for.
    #[doc(alias = "ibv_wr_set_xrc_srqn")]
    #[inline]
    pub fn setup_xrc_srqn(self, remote_srqn: u32) -> LocalBufferHandle<'g, G, Addressed<O, SharedReceiveQueueNumber>> {
        self.at(SharedReceiveQueueNumber(remote_srqn))
    }

    /// Where the request goes, for services of vendors. What the address borrows outlives the batch.
    #[inline]
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

    /// `ibv_wr_set_sge(qp, lkey, addr, length)` — one range of registered memory.
    ///
    /// # Safety
    ///
    /// As [`SetScatterGatherEntry::setup_sge`].
    #[doc(alias = "ibv_wr_set_sge")]
    #[inline]
    pub unsafe fn setup_sge(self, lkey: impl Into<LocalKey>, addr: u64, length: u32)
    where
        G::Service: Offers<O>,
    {
        // SAFETY: the caller's promise.
        unsafe { self.request.emit(self.operation, Single(ScatterGatherEntry::new(lkey.into(), addr, length))) }
    }

    /// `ibv_wr_set_sge_list(qp, num_sge, sg_list)` — several ranges, one behind the other.
    ///
    /// # Safety
    ///
    /// As [`SetScatterGatherEntry::setup_sge`], for each.
    #[doc(alias = "ibv_wr_set_sge_list")]
    #[inline]
    pub unsafe fn setup_sge_list(self, list: &[ScatterGatherEntry])
    where
        G::Service: Offers<O>,
    {
        // SAFETY: the caller's promise.
        unsafe { self.request.emit(self.operation, Gather(list)) }
    }

    /// `ibv_wr_set_inline_data(qp, addr, length)` — bytes that travel in the request itself, see [`SetInlineData`].
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

    /// The same for bytes that outlive the batch: on a basic queue pair they are not copied until the driver does, at the post.
    /// On an extended one there is no difference. Not for raw packets, of which drivers read more than a short one has.
    #[inline]
    pub fn setup_borrowed_inline_data<'q>(self, data: &'q [u8])
    where
        G: HoldsFor<'q>,
        G::Service: Offers<O> + ReadsDataAlone,
        O: CarriesInlineData,
    {
        // SAFETY: the bytes stay as they are until the batch is posted or taken back, and the driver reads no others.
        unsafe { self.request.emit(self.operation, Borrowed(data)) }
    }

    /// `ibv_wr_set_inline_data_list(qp, num_buf, buf_list)` — several pieces, one behind the other.
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

    /// No data: a message of length zero.
    #[inline]
    pub fn setup_no_data(self)
    where
        G::Service: Offers<O>,
    {
        // SAFETY: an empty list names no memory.
        unsafe { self.request.emit(self.operation, Gather(&[])) }
    }
}

/// Giving registered memory to a request, for code that is generic over what it is given to.
pub trait SetScatterGatherEntry: Sealed {
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
    ///   held;
    /// - on a queue pair for raw packets, the first entry holds at least the Ethernet header, in memory that the processor can
    ///   read: drivers copy it while they post.
    ///
    /// Requests may name the same bytes where the program takes whatever the device leaves there: many receives into one
    /// buffer, as a ping-pong posts them, overwrite each other and harm nobody else.
    ///
    /// A receive of a shared queue ends with its completion, or when the shared queue itself was destroyed: with its owner, the
    /// last of its queue pairs, and the completion queue that it was made with (XRC, tag matching). A queue pair that is reset or destroyed ends only the receive that it had begun.
    ///
    /// A request without [`WorkRequestFlags::Signaled`](super::WorkRequestFlags::Signaled) has completed when a later signaled
    /// one of its queue has.
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

impl<G, O> Sealed for LocalBufferHandle<'_, G, O> {}

impl<G: PostSendGuard, O: SendOperation> SetScatterGatherEntry for LocalBufferHandle<'_, G, O>
where
    G::Service: Offers<O>,
{
    #[inline]
    unsafe fn setup_sge(self, lkey: impl Into<LocalKey>, addr: u64, length: u32) {
        // SAFETY: the caller's promise.
        unsafe { LocalBufferHandle::setup_sge(self, lkey, addr, length) }
    }

    #[inline]
    unsafe fn setup_sge_list(self, list: &[ScatterGatherEntry]) {
        // SAFETY: the caller's promise.
        unsafe { LocalBufferHandle::setup_sge_list(self, list) }
    }
}

/// Giving bytes that travel in the request itself: any memory will do, and it is free again at once. For code that is generic
/// over what they are given to.
pub trait SetInlineData: Sealed {
    /// `ibv_wr_set_inline_data(qp, addr, length)` — at most as many bytes as the queue pair was built for
    /// (`max_inline_data`); only for sends and writes.
    #[doc(alias = "ibv_wr_set_inline_data")]
    fn setup_inline_data(self, data: &[u8]);

    /// `ibv_wr_set_inline_data_list(qp, num_buf, buf_list)` — several pieces, one behind the other.
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

/// An operation whose data may travel in the request itself.
#[diagnostic::on_unimplemented(message = "requests of `{Self}` carry no inline data: only sends and writes do")]
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
