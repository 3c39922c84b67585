//! Connections through blocking calls.
//!
//! | task | types |
//! |---|---|
//! | connecting: resolving an address, then connecting to the program there | [`Connector`], [`Resolved`] |
//! | accepting: listening, then accepting or rejecting a request | [`Listener`], [`ListenerBuilder`], [`Request`] |
//! | the resulting connection, and its end | [`Connection`], [`Ended`] |
//! | the cause of a failure, and its step | [`ConnectError`], [`ConnectCause`], [`ConnectStep`] |
//! | the deadline of the whole setup; the current step | `deadline`; `step` |
//! | several threads that take events of one channel | `watch` |

mod connection;
mod connector;
mod deadline;
mod error;
mod listener;
mod request;
mod resolved;
mod step;
mod watch;

use std::time::Duration;

pub use self::connection::{Connection, Ended};
pub use self::connector::Connector;
pub use self::error::{ConnectCause, ConnectError};
pub use self::listener::{Listener, ListenerBuilder};
pub use self::request::Request;
pub use self::resolved::Resolved;
pub use self::step::ConnectStep;

/// The default time limit within which the peer must respond.
const TIMEOUT: Duration = Duration::from_secs(10);
