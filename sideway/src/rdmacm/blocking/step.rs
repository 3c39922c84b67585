//! The step of a connection that failed.

use std::fmt;
use std::net::SocketAddr;

/// The step of a connection that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectStep {
    /// Looking up the addresses of a name.
    LookUpName,
    /// Creating an event channel.
    OpenChannel,
    /// Binding to a local address.
    Bind,
    /// Starting to listen.
    Listen,
    /// Waiting for a request.
    AwaitRequest,
    /// Resolving the device that leads to the peer, and the peer's hardware address.
    ResolveAddress,
    /// Resolving the route.
    ResolveRoute,
    /// Connecting to the peer.
    Connect,
    /// Looking up the peer's queue pair for datagrams.
    Lookup,
    /// Accepting a request.
    Accept,
    /// Rejecting a request.
    Reject,
    /// Waiting for events of a connection.
    Wait,
    /// Disconnecting.
    Disconnect,
}

impl ConnectStep {
    /// Returns the text of the step, and the preposition that precedes the address.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::LookUpName => ("looking up", ""),
            Self::OpenChannel => ("opening an event channel", " for"),
            Self::Bind => ("binding", " to"),
            Self::Listen => ("listening", " on"),
            Self::AwaitRequest => ("waiting for a request", " on"),
            Self::ResolveAddress => ("resolving the address", ""),
            Self::ResolveRoute => ("resolving the route", " to"),
            Self::Connect => ("connecting", " to"),
            Self::Lookup => ("looking up the queue pair", " at"),
            Self::Accept => ("accepting the connection", " from"),
            Self::Reject => ("rejecting the connection", " from"),
            Self::Wait => ("waiting on the connection", " with"),
            Self::Disconnect => ("ending the connection", " with"),
        }
    }

    /// Writes the step with its address, such as `connecting to 192.0.2.7:7174`.
    pub(super) fn write(self, f: &mut fmt::Formatter<'_>, address: Option<SocketAddr>) -> fmt::Result {
        let (done, with) = self.words();
        match address {
            Some(address) => write!(f, "{done}{with} {address}"),
            None => f.write_str(done),
        }
    }
}

impl fmt::Display for ConnectStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, None)
    }
}
