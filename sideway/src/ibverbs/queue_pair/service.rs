//! What a request of a queue pair has to say, by the transport service: a type, so that a request which says too little does
//! not compile.

use crate::ibverbs::work_request::operation::{
    AtomicWrite, BindMemoryWindow, CompareSwap, FetchAdd, Flush, LocalInvalidate, Read, Send, SendImm, SendInv,
    SendTso, Write, WriteImm,
};
use crate::ibverbs::work_request::{Addressed, DatagramAddress, SharedReceiveQueueNumber};

/// What the requests of a queue pair look like.
///
/// # Safety
///
/// The requests that it [`Offers`] are complete: a driver whose queue pairs were built for this service, with each
/// operation enabled or not, never follows a pointer or finishes a request that such a request has left unset.
pub unsafe trait Service: std::fmt::Debug + 'static {}

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
            with data needs `setup_xrc_srqn`; on a connected one neither is taken",
    note = "in code that is generic over the queue pair, name the service: `QueuePair<Service = Connected>`"
)]
pub unsafe trait Offers<O>: Service {}

/// One peer (reliable or unreliable connection), or raw packets: a request says what to do, and nothing of where.
#[derive(Clone, Copy, Debug)]
pub enum Connected {}

/// Datagrams: each request names an address handle, a queue pair and its Q_Key.
#[derive(Clone, Copy, Debug)]
pub enum Datagram {}

/// The initiator of an extended reliable connection (XRC): each request with data names a shared receive queue of the peer.
#[derive(Clone, Copy, Debug)]
pub enum ExtendedConnected {}

/// A service that the basic verbs have requests for.
pub trait BasicService: Service {}

// SAFETY: the operations below are complete by themselves.
unsafe impl Service for Connected {}
// SAFETY: only sends with an address are offered.
unsafe impl Service for Datagram {}
// SAFETY: operations with data are offered with the number of a shared receive queue alone; the others go to no peer.
unsafe impl Service for ExtendedConnected {}

impl BasicService for Connected {}
impl BasicService for Datagram {}
impl BasicService for ExtendedConnected {}

macro_rules! offers {
    ($Service:ty: $($Operation:ty),+ $(,)?) => {
        $(
            // SAFETY: the service says nothing of where, or the operation goes nowhere.
            unsafe impl Offers<$Operation> for $Service {}
        )+
    };
}

offers!(Connected: Send, SendImm, SendInv, SendTso<'_>, Write, WriteImm, Read, CompareSwap, FetchAdd, AtomicWrite, Flush);
offers!(Connected: LocalInvalidate, BindMemoryWindow<'_>);

// SAFETY: a datagram's request with its address.
unsafe impl<const CHECKED: bool> Offers<Addressed<Send, DatagramAddress<'_, CHECKED>>> for Datagram {}
// SAFETY: as above.
unsafe impl<const CHECKED: bool> Offers<Addressed<SendImm, DatagramAddress<'_, CHECKED>>> for Datagram {}

macro_rules! offers_with_srqn {
    ($($Operation:ty),+ $(,)?) => {
        $(
            // SAFETY: the number is there.
            unsafe impl Offers<Addressed<$Operation, SharedReceiveQueueNumber>> for ExtendedConnected {}
        )+
    };
}

offers_with_srqn!(Send, SendImm, SendInv, Write, WriteImm, Read, CompareSwap, FetchAdd);
offers!(ExtendedConnected: LocalInvalidate, BindMemoryWindow<'_>);
