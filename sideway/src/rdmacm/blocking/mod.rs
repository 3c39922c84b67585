//! Connections by calls that wait.

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

/// How long the other side may take, unless set.
const TIMEOUT: Duration = Duration::from_secs(10);
