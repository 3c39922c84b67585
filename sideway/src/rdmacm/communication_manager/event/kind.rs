//! The kinds of events.

use super::info::{ConnectionInfo, MulticastFailure, MulticastMembership, Rejection, RemoteDatagram, Unreachable};
use crate::rdmacm::communication_manager::{EventStatus, PrivateData};

/// The kind of an event, with its data.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// After [`resolve_addr`](crate::rdmacm::communication_manager::Identifier::resolve_addr): the identifier now has a
    /// device.
    AddressResolved,
    /// No device leads to the address, or no machine replied for the address.
    AddressError(EventStatus),
    /// After [`resolve_route`](crate::rdmacm::communication_manager::Identifier::resolve_route): the identifier can now
    /// connect.
    RouteResolved,
    /// No route was found.
    RouteError(EventStatus),
    /// A peer requests a connection. The event has a new identifier, with which the program accepts or rejects the
    /// request. Dropping the identifier rejects the request.
    ConnectRequest(ConnectionInfo),
    /// A peer looks up a queue pair for datagrams. The event is handled like a `ConnectRequest`, but no connection is
    /// established.
    LookupRequest(PrivateData),
    /// The peer accepted, and the program must move its own queue pair and then call
    /// [`establish`](crate::rdmacm::communication_manager::Identifier::establish).
    ConnectResponse(ConnectionInfo),
    /// The connection could not be established, because one side lacks a resource or a step on this side failed.
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
    /// The device is being removed. The program must destroy all objects of the device.
    DeviceRemoval,
    /// The multicast group is joined.
    MulticastJoin(MulticastMembership),
    /// The multicast group could not be joined, or the membership was lost. Joining the group again may succeed.
    MulticastError(MulticastFailure),
    /// The network device's hardware address changed (bonding). New connections use the new address.
    AddressChange,
    /// The queue pair of an ended connection can be used again, because no packets of the connection are in flight any
    /// more.
    TimewaitExit,
    /// After [`resolve_addrinfo`](crate::rdmacm::communication_manager::Identifier::resolve_addrinfo):
    /// [`query_addrinfo`](crate::rdmacm::communication_manager::Identifier::query_addrinfo) returns the result.
    AddressInfoResolved,
    /// The lookup found no addresses.
    AddressInfoError(EventStatus),
    /// The argument of [`write_cm_event`](crate::rdmacm::communication_manager::Identifier::write_cm_event).
    User(u64),
    /// An event that this version of the crate does not know. The program can read its type and its status.
    Other,
}
