//! Events that the core passes to the driver for received frames.

use crate::error::Status;
use crate::wire::{Flags, VERSION, WireError};

/// The peer violated the protocol: the connection ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The bytes are not a frame.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The frame is not allowed in this state.
    #[error("the peer sent {0}")]
    Unexpected(&'static str),
    /// The two sides have no version of the protocol in common.
    #[error("the peer supports versions {0} to {1} of the protocol, this side {VERSION}; update the older program")]
    Versions(u16, u16),
    /// The peer exceeded its credit.
    #[error("the peer sent more {0} than this side granted")]
    Credit(&'static str),
    /// The body is longer than this side accepts.
    #[error("the peer sent a body of {0} bytes; {1} are allowed")]
    Body(usize, usize),
    /// The hello contains other numbers than those of this connection's sides, so another peer may have relayed it.
    #[error(
        "the connection may be relayed, or its addresses translated: the hello is for the sides {0:?} instead of {1:?}"
    )]
    Ends((u32, u32), (u32, u32)),
}

impl Violation {
    /// The status with which the connection ends.
    pub fn status(&self) -> Status {
        match self {
            Self::Wire(WireError::Tls) | Self::Ends(..) => Status::UNAUTHENTICATED,
            _ => Status::PROTOCOL,
        }
    }
}

/// A request that arrived.
#[derive(Debug)]
pub struct Request<'f> {
    /// Number of the call, which the answer repeats.
    pub id: u32,
    /// Hash of the method's name.
    pub method: u64,
    /// The flags.
    pub flags: Flags,
    /// The time until which the caller waits, measured by the clock of this side.
    pub deadline: Option<u64>,
    /// Metadata.
    pub meta: &'f [u8],
    /// Descriptors, arguments and inline bytes: see `Bulk::split`.
    pub body: &'f [u8],
}

/// The event of a frame, for the driver.
#[derive(Debug)]
pub enum Event<'f> {
    /// No event for the driver.
    None,
    /// The peer's hello arrived: calls may be made.
    Ready,
    /// A request to run.
    Request(Request<'f>),
    /// The answer to a call of this side arrived.
    Answer {
        /// The call.
        id: u32,
        /// The status of the answer.
        status: Status,
        /// Whether the peer's library refused the call, so that no handler ran.
        is_refused: bool,
        /// The result, the error, or a text.
        body: &'f [u8],
    },
    /// An item of a stream arrived. When the program has taken it, the driver calls `Connection::consumed`, which
    /// returns the credit for its bytes.
    Item {
        /// The call.
        id: u32,
        /// The item.
        body: &'f [u8],
    },
    /// The caller's stream has ended.
    End {
        /// The call.
        id: u32,
    },
    /// The caller has cancelled the call. The driver must answer it with [`Status::CANCELLED`].
    Cancel {
        /// The call.
        id: u32,
    },
    /// More items may be sent.
    Room {
        /// The call.
        id: u32,
    },
    /// Bytes of an attachment or a target, or a request for such bytes.
    Bulk(BulkFrame<'f>),
    /// The peer accepts no more calls.
    GoAway {
        /// The peer's reason.
        reason: &'f [u8],
    },
}

/// The action of a `Bulk` frame, in its budget field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum BulkOperation {
    /// The body contains bytes of an attachment or a target, starting at the offset.
    Data = 0,
    /// The body is an 8-byte number. The frame requests this many bytes, beginning at the offset.
    Pull = 1,
    /// The requested bytes are no longer available.
    Gone = 2,
}

/// A `Bulk` frame.
#[derive(Debug)]
pub struct BulkFrame<'f> {
    /// The call.
    pub id: u32,
    /// The index of the attachment or target within the call.
    pub index: usize,
    /// Whether the frame contains bytes, requests them, or reports that they are unavailable.
    pub operation: BulkOperation,
    /// The offset of the bytes within the attachment or target.
    pub offset: u64,
    /// Returns the encoded bytes.
    pub body: &'f [u8],
}
