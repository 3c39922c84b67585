//! Which fields the requests of a queue pair have, for each transport service. The services are types, so that a
//! request with missing fields does not compile.

use super::transition::standard_transition;
use super::{QueuePairState, QueuePairType, Transition};
use crate::ffi::Sealed;
use crate::ibverbs::work_request::operation::{
    AtomicWrite, BindMemoryWindow, CompareSwap, Either, FetchAdd, Flush, LocalInvalidate, Read, Send, SendImm, SendInv,
    SendTso, Write, WriteImm,
};
use crate::ibverbs::work_request::{
    Addressed, DatagramAddress, HoldsFor, PostSendError, PostSendGuard, SharedReceiveQueueNumber, WorkRequestFlags,
};

/// The service of a queue pair, which determines the fields of its requests. This trait is sealed.
///
/// # Safety
///
/// The requests that the service [`Offers`] are complete: the driver never dereferences a pointer that such a request
/// leaves unset, and never needs an unset field to execute the request. This must hold on all queue pairs of this
/// service, whichever operations are enabled.
pub unsafe trait Service: Sealed + std::fmt::Debug + Sized + 'static {
    /// Whether requests are raw packets. The device may write checksums into raw packets, so extended queue pairs check
    /// for support first.
    #[doc(hidden)]
    const PACKETS: bool = false;

    /// Returns the attributes of a transition between two states, or `None` if there is no such transition. The result
    /// is used to explain errors.
    fn transition(qp_type: QueuePairType, from: QueuePairState, to: QueuePairState) -> Option<Transition> {
        standard_transition(qp_type, from, to)
    }

    /// Posts a request without data that completes after all earlier requests. Its completion marks the end of a send
    /// queue (see [`teardown`](super::teardown)). Returns `None` if the service has no request that can be posted in
    /// the Error state without further information.
    fn post_marker<'q, G>(guard: G, wr_id: u64) -> Option<Result<(), PostSendError>>
    where
        G: PostSendGuard<Service = Self> + HoldsFor<'q>,
    {
        let _ = (guard, wr_id);
        None
    }
}

/// A request that a service supports: an operation, with an address if the service needs one.
///
/// Whether the device supports the operation is checked when a queue pair is built, and not by this trait.
///
/// # Safety
///
/// The request is complete, as defined by [`Service`].
#[diagnostic::on_unimplemented(
    message = "a queue pair of service `{Self}` does not support request `{O}`",
    label = "not a request of a `{Self}` queue pair",
    note = "datagrams need an address: call `setup_ud_addr` before the data; XRC requests with data need \
        `setup_xrc_srqn`; connections take neither; raw packet queue pairs only send",
    note = "in code that is generic over the queue pair, name the service: `QueuePair<Service = Connected>`"
)]
pub unsafe trait Offers<O>: Service {}

/// A reliable or unreliable connection. Its requests have no destination.
#[derive(Clone, Copy, Debug)]
pub enum Connected {}

/// Datagrams: each request names an address handle, a queue pair and its Q_Key.
#[derive(Clone, Copy, Debug)]
pub enum Datagram {}

/// The initiator of an extended reliable connection (XRC): each request with data names a shared receive queue of the
/// peer.
#[derive(Clone, Copy, Debug)]
pub enum Xrc {}

/// Raw packets with all their headers: requests are sends, optionally segmented by the device.
#[derive(Clone, Copy, Debug)]
pub enum RawPacket {}

/// A service for which drivers read only the inline data and no bytes after it. Raw packets are different: drivers read
/// a fixed number of bytes at the start of a packet, even if the packet is shorter.
///
/// # Safety
///
/// For this service, drivers read only the inline data and no bytes after it.
#[diagnostic::on_unimplemented(
    message = "drivers may read more than the inline data of a `{Self}` queue pair",
    label = "use `setup_inline_data`, which copies it"
)]
pub unsafe trait ReadsDataAlone: Service {}

// SAFETY: the device creates the headers, so drivers do not read them from the data.
unsafe impl ReadsDataAlone for Connected {}
// SAFETY: as above.
unsafe impl ReadsDataAlone for Datagram {}
// SAFETY: as above.
unsafe impl ReadsDataAlone for Xrc {}

/// A service with requests in the basic verbs.
pub trait BasicService: Service {}

impl Sealed for Connected {}
impl Sealed for RawPacket {}
impl Sealed for Datagram {}
impl Sealed for Xrc {}

// SAFETY: the operations below are complete without an address.
unsafe impl Service for Connected {
    fn post_marker<'q, G>(mut guard: G, wr_id: u64) -> Option<Result<(), PostSendError>>
    where
        G: PostSendGuard<Service = Self> + HoldsFor<'q>,
    {
        guard.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_send().setup_no_data();
        Some(guard.post())
    }
}
// SAFETY: the headers of a packet contain its address. (A packet without data has no headers, so such a request cannot
// mark the end of a queue.)
unsafe impl Service for RawPacket {
    const PACKETS: bool = true;
}
// SAFETY: only sends with an address are offered.
unsafe impl Service for Datagram {}
// SAFETY: the service offers operations with data only with the number of a shared receive queue. The other operations
// involve no peer.
unsafe impl Service for Xrc {
    fn post_marker<'q, G>(mut guard: G, wr_id: u64) -> Option<Result<(), PostSendError>>
    where
        G: PostSendGuard<Service = Self> + HoldsFor<'q>,
    {
        // The marker is flushed before the device looks up the shared receive queue.
        guard.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_send().setup_xrc_srqn(0).setup_no_data();
        Some(guard.post())
    }
}

impl BasicService for Connected {}
impl BasicService for RawPacket {}
impl BasicService for Datagram {}
impl BasicService for Xrc {}

macro_rules! offers {
    ($Service:ty: $($Operation:ty),+ $(,)?) => {
        $(
            // SAFETY: the service needs no destination, or the operation does not send anything.
            unsafe impl Offers<$Operation> for $Service {}
        )+
    };
}

offers!(Connected: Send, SendImm, SendInv, Write, WriteImm, Read, CompareSwap, FetchAdd, AtomicWrite, Flush);
offers!(Connected: Either<Send, SendImm>, Either<Write, WriteImm>);
offers!(Connected: LocalInvalidate, BindMemoryWindow<'_>);
offers!(RawPacket: Send, SendTso<'_>);

// SAFETY: this is a datagram request with its address.
unsafe impl<const CHECKED: bool> Offers<Addressed<Send, DatagramAddress<'_, CHECKED>>> for Datagram {}
// SAFETY: as above.
unsafe impl<const CHECKED: bool> Offers<Addressed<SendImm, DatagramAddress<'_, CHECKED>>> for Datagram {}
// SAFETY: as above.
unsafe impl<const CHECKED: bool> Offers<Addressed<Either<Send, SendImm>, DatagramAddress<'_, CHECKED>>> for Datagram {}
// SAFETY: as above.
unsafe impl<const CHECKED: bool> Offers<Addressed<SendTso<'_>, DatagramAddress<'_, CHECKED>>> for Datagram {}

macro_rules! offers_with_srqn {
    ($($Operation:ty),+ $(,)?) => {
        $(
            // SAFETY: the request has the number of the shared receive queue.
            unsafe impl Offers<Addressed<$Operation, SharedReceiveQueueNumber>> for Xrc {}
        )+
    };
}

offers_with_srqn!(Send, SendImm, SendInv, Write, WriteImm, Read, CompareSwap, FetchAdd);
offers_with_srqn!(Either<Send, SendImm>, Either<Write, WriteImm>);
offers!(Xrc: LocalInvalidate, BindMemoryWindow<'_>);
