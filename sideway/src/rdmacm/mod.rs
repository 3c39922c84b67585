//! librdmacm: connections by address.
//!
//! [`communication_manager`] has the nouns of the library: channels of events, identifiers, and what happens to them.
//!
//! librdmacm is opened when the first channel is made. Where it is missing, [`EventChannel::new`] says so.
//!
//! [`EventChannel::new`]: communication_manager::EventChannel::new

pub mod communication_manager;
