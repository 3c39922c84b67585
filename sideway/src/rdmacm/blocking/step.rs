//! What was being done when it failed.

use std::fmt;
use std::net::SocketAddr;

/// What was being done when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectStep {
    /// Asking the system what addresses a name has.
    LookUpName,
    /// Opening a channel to the connection manager.
    OpenChannel,
    /// Taking an address of this machine.
    Bind,
    /// Starting to listen there.
    Listen,
    /// Waiting for somebody who wants to connect.
    AwaitRequest,
    /// Finding the device that leads to the peer, and the peer's hardware address.
    ResolveAddress,
    /// Finding the route.
    ResolveRoute,
    /// Asking the peer for a connection.
    Connect,
    /// Asking the peer for its queue pair for datagrams.
    Lookup,
    /// Saying yes to a peer.
    Accept,
    /// Saying no to a peer.
    Reject,
    /// Waiting for what happens to a connection.
    Wait,
    /// Ending a connection.
    Disconnect,
}

impl ConnectStep {
    /// What is done, and the word that leads on to the address.
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

    /// `connecting to 192.0.2.7:7174`.
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
