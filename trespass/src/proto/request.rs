//! The requests that a connection passes to its link.

use std::sync::Arc;

use crate::memory::{Buf, Progress, Transfer};

use super::frame::Source;

/// The address and the key of memory of the peer.
pub(crate) type Remote = Source;

/// A request that a connection passes to its link. A link executes and completes requests in order.
#[derive(Debug)]
pub(crate) enum Request {
    /// SENDs the bytes of the buffer (`buf[..]`), which are at most one segment. If they are few, they are sent inline,
    /// and the buffer is then free immediately. The connection has a credit for the SEND, so the peer has a receive
    /// posted.
    Send(Buf),
    /// READs `into.len()` bytes of the peer's memory into the buffer. The completion contains the token.
    Read { token: u32, into: Buf, from: Remote },
    /// WRITEs the bytes of the buffer to a buffer that the peer has announced.
    Write { from: Buf, to: Remote },
    /// Revokes the key of an announced buffer, to which the peer has written a message of `length` bytes. When the key
    /// is invalid, the completion contains the token and the message.
    Land { token: u32, remote: Remote, length: u32 },
    /// Transfers bytes between a region and the peer's memory, without notifying the peer. When the request completes,
    /// the progress of the transfer is updated.
    Transfer(Box<Transfer>),
    /// Revokes the key of an exposed buffer. When the key is invalid, the buffer is added to the spare buffers.
    Conceal(Remote),
    /// Revokes the key of a granted region, and completes its progress when the key is invalid. The progress identifies
    /// the key, because without windows several grants may have the same address and key.
    Revoke(Arc<Progress>),
    /// Makes the key of a region that was just granted valid.
    Bind,
    /// Probes the peer's NIC with a zero-length WRITE; if no acknowledgement arrives, the link fails. A transport with
    /// its own keepalive completes the probe when it has passed all earlier requests on.
    Probe,
}
