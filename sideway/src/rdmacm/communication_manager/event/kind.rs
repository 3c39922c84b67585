//! The kinds of events.

use super::info::{ConnectionInfo, MulticastFailure, MulticastMembership, Rejection, RemoteDatagram, Unreachable};
use crate::rdmacm::communication_manager::{EventStatus, PrivateData};

/// The kind of an event, with its data.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// After [`resolve_addr`](crate::rdmacm::communication_manager::Identifier::resolve_addr): the identifier has a
    /// device.
    AddressResolved,
    /// No device leads to the address, or no machine there replied.
    AddressError(EventStatus),
    /// After [`resolve_route`](crate::rdmacm::communication_manager::Identifier::resolve_route): the identifier can
    /// connect.
    RouteResolved,
    /// No route was found.
    RouteError(EventStatus),
    /// A peer requests a connection. The event has a new identifier to accept or reject; dropping it rejects the
    /// request.
    ConnectRequest(ConnectionInfo),
    /// A peer looks up a queue pair for datagrams. As for `ConnectRequest`, but no connection is established.
    LookupRequest(PrivateData),
    /// The peer accepted, and the program must move its own queue pair and then call
    /// [`establish`](crate::rdmacm::communication_manager::Identifier::establish).
    ConnectResponse(ConnectionInfo),
    /// The connection could not be established: one side lacks a resource, or a step on this side failed.
    ConnectError(EventStatus),
    /// The peer does not respond, or it rejected the lookup of a queue pair for datagrams.
    Unreachable(Unreachable),
    /// The peer rejected the connection.
    Rejected(Rejection),
    /// The connection is established. On the passive side of InfiniBand and RoCE the parameters are empty.
    Established(ConnectionInfo),
    /// The queue pair for datagrams was found.
    LookupResponse(RemoteDatagram),
    /// One side ended the connection.
    Disconnected(PrivateData),
    /// The device is being removed: destroy all objects on it.
    DeviceRemoval,
    /// The multicast group is joined.
    MulticastJoin(MulticastMembership),
    /// The multicast group could not be joined, or was lost: joining it again may succeed.
    MulticastError(MulticastFailure),
    /// The network device's hardware address changed (bonding): new connections use the new one.
    AddressChange,
    /// The queue pair of an ended connection can be used again: no packets of the connection are in flight any more.
    TimewaitExit,
    /// After [`resolve_addrinfo`](crate::rdmacm::communication_manager::Identifier::resolve_addrinfo):
    /// [`query_addrinfo`](crate::rdmacm::communication_manager::Identifier::query_addrinfo) returns the result.
    AddressInfoResolved,
    /// The lookup found no addresses.
    AddressInfoError(EventStatus),
    /// The argument of [`write_cm_event`](crate::rdmacm::communication_manager::Identifier::write_cm_event).
    User(u64),
    /// An unknown event: see its type and its status.
    Other,
}
