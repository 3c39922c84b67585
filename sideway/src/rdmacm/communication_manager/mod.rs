//! The connection manager: an [`EventChannel`], the [`Identifier`]s made on it, and the [`Event`]s that tell how they fare.
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
//! Every call on an identifier returns at once; what it leads to comes as an event on its channel. [`getaddrinfo`], which asks
//! for names, and [`EventChannel::create_ep`], which takes what that found and does the steps up to the route, wait.
//!
//! # Who holds what
//!
//! An identifier holds its channel, and an event its identifier. A queue pair that was made through an identifier holds it. An
//! event is acknowledged before it is handed out: destroying an identifier never waits for a program that has taken an event and
//! forgotten it.
//!
//! # Threads
//!
//! All of it may be used from any thread. While one thread takes an event, in the library and without waiting there, other
//! threads' calls on identifiers of that channel wait for it: the library writes to the identifier then.

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
