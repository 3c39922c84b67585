//! What a request of a queue pair has to say, by the transport service: a type, so that a request which says too little does
//! not compile.

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

/// What the requests of a queue pair look like. Sealed: other crates add a service through [`Vendor`](super::vendor::Vendor).
///
/// # Safety
///
/// The requests that it [`Offers`] are complete: a driver whose queue pairs were built for this service, with each
/// operation enabled or not, never follows a pointer or finishes a request that such a request has left unset.
pub unsafe trait Service: Sealed + std::fmt::Debug + Sized + 'static {
    /// Whether requests are packets with all their headers, into which the device may write checksums: extended queue pairs of
    /// these see first whether it does.
    #[doc(hidden)]
    const PACKETS: bool = false;

    /// What a transition between two states needs and takes, by which errors are explained; `None` where there is none such.
    fn transition(qp_type: QueuePairType, from: QueuePairState, to: QueuePairState) -> Option<Transition> {
        standard_transition(qp_type, from, to)
    }

    /// Posts a request without data that completes behind all others: how the end of a send queue is seen (see
    /// [`teardown`](super::teardown)). `None` where the service has no request that can be posted to a queue pair in the error
    /// state without knowing more.
    fn post_marker<'q, G>(guard: G, wr_id: u64) -> Option<Result<(), PostSendError>>
    where
        G: PostSendGuard<Service = Self> + HoldsFor<'q>,
    {
        let _ = (guard, wr_id);
        None
    }
}

/// A request that a service takes: an operation, with an address where the service wants one.
///
/// Whether the device has the operation is another question, which the builder of the queue pair answers.
///
/// # Safety
///
/// The request is complete, as [`Service`] says.
#[diagnostic::on_unimplemented(
    message = "a queue pair of service `{Self}` takes no request `{O}`",
    label = "this request is not one of a `{Self}` queue pair",
    note = "datagrams are sends that say where they go: `setup_ud_addr` before the data; on an XRC queue pair every request \
            with data needs `setup_xrc_srqn`; on a connected one neither is taken; raw packets are sent, and nothing else",
    note = "in code that is generic over the queue pair, name the service: `QueuePair<Service = Connected>`"
)]
pub unsafe trait Offers<O>: Service {}

/// One peer (reliable or unreliable connection): a request says what to do, and nothing of where.
#[derive(Clone, Copy, Debug)]
pub enum Connected {}

/// Datagrams: each request names an address handle, a queue pair and its Q_Key.
#[derive(Clone, Copy, Debug)]
pub enum Datagram {}

/// The initiator of an extended reliable connection (XRC): each request with data names a shared receive queue of the peer.
#[derive(Clone, Copy, Debug)]
pub enum Xrc {}

/// Packets with all their headers: requests are sends, whole or segmented by the device.
#[derive(Clone, Copy, Debug)]
pub enum RawPacket {}

/// A service whose drivers read of inline data what there is, and nothing beside it: what begins a raw packet they read however short
/// that is.
///
/// # Safety
///
/// It is so.
#[diagnostic::on_unimplemented(
    message = "drivers may read more than the inline data of a `{Self}` queue pair",
    label = "use `setup_inline_data`, which copies it"
)]
pub unsafe trait ReadsDataAlone: Service {}

// SAFETY: the headers of these are made by the device.
unsafe impl ReadsDataAlone for Connected {}
// SAFETY: as above.
unsafe impl ReadsDataAlone for Datagram {}
// SAFETY: as above.
unsafe impl ReadsDataAlone for Xrc {}

/// A service that the basic verbs have requests for.
pub trait BasicService: Service {}

impl Sealed for Connected {}
impl Sealed for RawPacket {}
impl Sealed for Datagram {}
impl Sealed for Xrc {}

// SAFETY: the operations below are complete by themselves.
unsafe impl Service for Connected {
    fn post_marker<'q, G>(mut guard: G, wr_id: u64) -> Option<Result<(), PostSendError>>
    where
        G: PostSendGuard<Service = Self> + HoldsFor<'q>,
    {
        guard.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_send().setup_no_data();
        Some(guard.post())
    }
}
// SAFETY: a packet has its address in its headers. (One without data has none: it cannot mark an end.)
unsafe impl Service for RawPacket {
    const PACKETS: bool = true;
}
// SAFETY: only sends with an address are offered.
unsafe impl Service for Datagram {}
// SAFETY: operations with data are offered with the number of a shared receive queue alone; the others go to no peer.
unsafe impl Service for Xrc {
    fn post_marker<'q, G>(mut guard: G, wr_id: u64) -> Option<Result<(), PostSendError>>
    where
        G: PostSendGuard<Service = Self> + HoldsFor<'q>,
    {
        // Flushed before anybody looks for the shared receive queue.
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
            // SAFETY: the service says nothing of where, or the operation goes nowhere.
            unsafe impl Offers<$Operation> for $Service {}
        )+
    };
}

offers!(Connected: Send, SendImm, SendInv, Write, WriteImm, Read, CompareSwap, FetchAdd, AtomicWrite, Flush);
offers!(Connected: Either<Send, SendImm>, Either<Write, WriteImm>);
offers!(Connected: LocalInvalidate, BindMemoryWindow<'_>);
offers!(RawPacket: Send, SendTso<'_>);

// SAFETY: a datagram's request with its address.
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
            // SAFETY: the number is there.
            unsafe impl Offers<Addressed<$Operation, SharedReceiveQueueNumber>> for Xrc {}
        )+
    };
}

offers_with_srqn!(Send, SendImm, SendInv, Write, WriteImm, Read, CompareSwap, FetchAdd);
offers_with_srqn!(Either<Send, SendImm>, Either<Write, WriteImm>);
offers!(Xrc: LocalInvalidate, BindMemoryWindow<'_>);
