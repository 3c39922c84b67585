//! What a connection asks of its link.

use crate::memory::{Buf, Transfer};

use super::frame::Source;

/// Memory of the peer.
pub(crate) type Remote = Source;

/// What a connection asks of its link. Requests of a link are executed and completed in order.
#[derive(Debug)]
pub(crate) enum Request {
    /// SEND of the buffer's bytes (`buf[..]`), at most a segment. Inline where it fits: then the buffer may go to the spare ones at once.
    /// The connection has a credit for it, so the peer has a receive posted.
    Send(Buf),
    /// READ of `into.len()` bytes of the peer's memory into the buffer. Completed with the token.
    Read { token: u32, into: Buf, from: Remote },
    /// Moves bytes between a region and the peer's memory, which takes no notice. It reports to its own progress.
    Transfer(Box<Transfer>),
    /// Takes the key of an exposed buffer or a granted region back, and passes the buffer to the spare ones when the key has stopped working.
    Conceal(Remote),
    /// Asks the peer's NIC for a sign of life (a zero-length WRITE); without an answer the link is lost. A transport that keeps itself
    /// alive answers at once.
    Probe,
}
