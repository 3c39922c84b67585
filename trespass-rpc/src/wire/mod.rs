//! The wire format. A frame consists of a 32-byte header, metadata and a body. `WIRE.md` describes the bytes.
//!
//! Parsers accept any input: they return a value or a [`WireError`], and check each length against the bytes that have
//! arrived.

mod bulk;
mod header;
mod hello;
mod meta;

pub use bulk::{BULK, Bulk, BulkKind};
pub use header::{Flags, Frame, HEADER, Header, Kind, VERSION, header_bytes, set_budget, write};
pub use hello::{Hello, MethodInfo, PeerMethod};
pub use meta::{META_LIMIT, Metadata};

/// The error for bytes that are not a frame of this version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The first byte of the header does not belong to this protocol.
    #[error("the peer does not use this protocol: its frame begins with {0:#04x}; check the port")]
    Magic(u8),
    /// One side uses TLS, and the other does not.
    #[error("only one side uses TLS; set `Options::tls` on both sides")]
    Tls,
    /// The header has a version that this side does not support.
    #[error("the peer uses version {0} of the protocol, this side version {VERSION}; update the older program")]
    Version(u8),
    /// The frame is shorter than its header announces.
    #[error("a frame ends early: {0} of {1} bytes")]
    Short(usize, usize),
    /// A field has an invalid value.
    #[error("a frame has an invalid {0}")]
    Field(&'static str),
    /// The checksum differs.
    #[error("a frame was damaged: its checksum differs")]
    Checksum,
}
