//! What is known of a connection.

use std::fmt;

/// The transport of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// An RDMA device.
    Rdma,
    /// TCP.
    Tcp,
}

/// The transport and the traffic counters of a connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// The transport.
    pub transport: Kind,
    /// The device, the port and the addresses, as text.
    pub path: String,
    /// The reason why the connection uses TCP although RDMA was permitted.
    pub fallback: Option<String>,
    /// The number of requests that contained outgoing messages. A request may contain several small messages, or a part
    /// of a large one.
    pub sends: u64,
    /// The number of requests that have arrived.
    pub receives: u64,
    /// The number of long messages that the peer reads from this side's memory, or that this side writes to the peer's.
    pub rendezvous_sent: u64,
    /// The number of long messages that this side has read from the peer's memory, or that the peer has written.
    pub rendezvous_received: u64,
}

/// Formats the transport, the path, and the reason for a fallback to TCP.
impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        match &self.fallback {
            Some(reason) => write!(f, " (no RDMA: {reason})"),
            None => Ok(()),
        }
    }
}
