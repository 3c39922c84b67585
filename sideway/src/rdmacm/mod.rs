//! librdmacm: connections by address.
//!
//! [`communication_manager`] has the nouns of the library: channels of events, identifiers, and what happens to them.
//!
//! librdmacm is opened when the first channel is made. Where it is missing, [`EventChannel::new`] says so.
//!
//! [`EventChannel::new`]: communication_manager::EventChannel::new

mod blocking;
pub mod communication_manager;

pub use self::blocking::{
    ConnectCause, ConnectError, ConnectStep, Connection, Connector, Ended, Listener, ListenerBuilder, Request, Resolved,
};
pub use self::communication_manager::{ConnectionInfo, ConnectionParameter, PortSpace};
