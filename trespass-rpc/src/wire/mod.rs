//! What travels: frames of a 32-byte header, metadata and a body. `WIRE.md` describes the bytes.
//!
//! Parsers are total: any bytes give a value or a [`WireError`], and no length is believed beyond the bytes that are there.

mod bulk;
mod header;
mod hello;
mod meta;

pub use bulk::{BULK, Bulk, BulkKind};
pub use header::{Flags, Frame, HEADER, Header, Kind, VERSION, set_budget, write, write_header};
pub use hello::{Hello, MethodInfo, PeerMethod};
pub use meta::{META_LIMIT, Metadata};

/// Bytes that are not a frame of this version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The first byte of the header is none of this protocol.
    #[error("the peer does not use this protocol: a frame begins with {0:#04x}; check the port")]
    Magic(u8),
    /// The header has a version that this side does not have.
    #[error("the peer uses version {0} of the protocol, this side has version {VERSION}; update the older one")]
    Version(u8),
    /// The frame ends before its parts do.
    #[error("a frame ends early: {0} of {1} bytes")]
    Short(usize, usize),
    /// A field has a value that it cannot have.
    #[error("a frame has an invalid {0}")]
    Field(&'static str),
    /// The checksum differs.
    #[error("a frame was damaged: its checksum differs")]
    Checksum,
}
