//! The kinds of events.

use super::info::{ConnectionInfo, MulticastFailure, MulticastMembership, Rejection, RemoteDatagram, Unreachable};
use crate::rdmacm::communication_manager::{EventStatus, PrivateData};

/// What happened to an identifier, with what comes along.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// After [`resolve_addr`](crate::rdmacm::communication_manager::Identifier::resolve_addr): the identifier is on a device.
    AddressResolved,
    /// No device leads to the address, or nobody there answers.
    AddressError(EventStatus),
    /// After [`resolve_route`](crate::rdmacm::communication_manager::Identifier::resolve_route): the identifier can connect.
    RouteResolved,
    /// There is no route.
    RouteError(EventStatus),
    /// Somebody wants to connect. The event's identifier is a new one: it is accepted or rejected, and rejected when it is
    /// dropped.
    ConnectRequest(ConnectionInfo),
    /// Somebody looks a queue pair for datagrams up. As above; there is no connection afterwards.
    LookupRequest(PrivateData),
    /// The peer has accepted, and this side moves its queue pair by itself: it does so, and calls
    /// [`establish`](crate::rdmacm::communication_manager::Identifier::establish).
    ConnectResponse(ConnectionInfo),
    /// The connection could not be made: a side ran out of something, or a step of this side's failed.
    ConnectError(EventStatus),
    /// The peer does not answer, or (datagrams) says no.
    Unreachable(Unreachable),
    /// The peer says no.
    Rejected(Rejection),
    /// The connection is there. On the passive side of InfiniBand and RoCE nothing comes along.
    Established(ConnectionInfo),
    /// The queue pair for datagrams is found.
    LookupResponse(RemoteDatagram),
    /// The connection has ended, by whichever side.
    Disconnected(PrivateData),
    /// The device is going away; so should everything that is on it.
    DeviceRemoval,
    /// The multicast group is joined.
    MulticastJoin(MulticastMembership),
    /// The multicast group could not be joined, or is lost: joining it again may help.
    MulticastError(MulticastFailure),
    /// The network device has another hardware address now (bonding): connections that are made from now on use it.
    AddressChange,
    /// The queue pair of a connection that has ended may be used again: packets of the connection are not on their way any more.
    TimewaitExit,
    /// One that this version of the crate has no name for: see the type and the status of the event.
    Other,
}
