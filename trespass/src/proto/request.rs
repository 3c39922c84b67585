//! Requests of a connection to its link.

use std::sync::Arc;

use crate::memory::{Buf, Progress, Transfer};

use super::frame::Source;

/// Memory of the peer.
pub(crate) type Remote = Source;

/// A request of a connection to its link. Requests of a link are executed and completed in order.
#[derive(Debug)]
pub(crate) enum Request {
    /// SEND of the buffer's bytes (`buf[..]`), at most a segment. Short bytes are sent inline; the buffer is then free
    /// immediately. The connection has a credit for it, so the peer has a receive posted.
    Send(Buf),
    /// READ of `into.len()` bytes of the peer's memory into the buffer. The completion has the token.
    Read { token: u32, into: Buf, from: Remote },
    /// Transfers bytes between a region and the peer's memory, without a notification of the peer. Completion updates
    /// the transfer's own progress.
    Transfer(Box<Transfer>),
    /// Revokes the key of an exposed buffer. When the key is invalid, the buffer joins the spare ones.
    Conceal(Remote),
    /// Revokes the key of the granted region with this progress, which ends when the key is invalid. On a device without
    /// windows, several granted regions may have the same address and key.
    Revoke(Arc<Progress>),
    /// Probes the peer's NIC with a zero-length WRITE; without an acknowledgement the link is lost. A transport with
    /// its own keepalive completes the probe immediately.
    Probe,
}
