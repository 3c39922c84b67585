//! Connections by calls that wait.
//!
//! | what | where |
//! |---|---|
//! | connecting: to an address, then to the program there | [`Connector`], [`Resolved`] |
//! | being connected to: listening, then a request that is taken or not | [`Listener`], [`ListenerBuilder`], [`Request`] |
//! | the connection that both come to, and its end | [`Connection`], [`Ended`] |
//! | what failed, and at which step | [`ConnectError`], [`ConnectCause`], [`ConnectStep`] |
//! | the time until when all of it has to be done | `deadline`; of one step: `step` |
//! | who else takes events of the channel meanwhile | `watch` |

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
