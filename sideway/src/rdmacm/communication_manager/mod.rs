//! The connection manager: an [`EventChannel`], its [`Identifier`]s, and their [`Event`]s.
//!
//! ```text
//! active side                                                 passive side
//!
//! EventChannel ── create_id ──► Identifier                    EventChannel ── create_id ──► Identifier
//!   resolve_addr   ─► AddressResolved                           bind_addr, listen
//!   resolve_route  ─► RouteResolved
//!   create_qp
//!   connect        ──────────────────────────────────────────►  ConnectRequest ─► cm_id: a new Identifier
//!                                                                 create_qp
//!   Established    ◄──────────────────────────────────────────    accept          ─► Established
//!   disconnect     ──────────────────────────────────────────►  Disconnected
//! ```
//!
//! Calls on an identifier return immediately, and the result arrives as an event on its channel. Only two calls wait:
//! [`getaddrinfo`], which looks up names, and [`EventChannel::create_ep`], which takes the result of a lookup and
//! resolves the address and the route.
//!
//! # Ownership
//!
//! An identifier keeps its channel alive, and an event keeps its identifier alive. A queue pair that was created
//! through an identifier keeps the identifier alive. Events are acknowledged before they are returned, so destroying an
//! identifier never waits for a program that has not dropped an event.
//!
//! # Threads
//!
//! All types can be used from any thread. While one thread takes an event, calls on identifiers of that channel wait,
//! because the library writes to an identifier. The thread that takes the event does not block inside the library, so
//! these waits are short.

mod address;
mod address_info;
mod connection_parameter;
mod endpoint;
mod event;
mod event_channel;
mod event_type;
mod identifier;
mod infiniband_address;
mod lent_context;
mod path_record;
mod private_data;
mod socket_address;
mod status;

pub use self::address::{Address, AddressFamily};
pub use self::address_info::{AddressInfo, AddressInfoFlags, GetAddressInfoError, LookupError, getaddrinfo};
pub use self::connection_parameter::ConnectionParameter;
pub use self::event::{
    ConnectionInfo, Event, EventKind, MulticastFailure, MulticastMembership, Rejection, RemoteDatagram, Unreachable,
};
pub use self::event_channel::{CreateEventChannelError, EventChannel};
pub use self::event_type::{EventType, PortSpace};
pub use self::identifier::{Identifier, MulticastJoinFlag};
pub use self::infiniband_address::InfiniBandAddress;
pub use self::lent_context::devices;
pub use self::path_record::PathRecord;
pub use self::private_data::PrivateData;
pub use self::status::{EventStatus, RejectReason, SidrStatus};
