//! The requester's side of a message: memory to copy from and to.

use crate::wire::bytes::{self, End, Fault, Segment};

/// The requester's side of a message that a responder handles: the source or target of the data.
pub(crate) trait Exchange {
    /// Copies the message's data in order. `into` has the length of the data.
    ///
    /// # Errors
    ///
    /// The side whose memory failed.
    fn take(&mut self, into: &[Segment]) -> Result<(), TransferFault>;

    /// Copies the eight bytes of an atomic write.
    ///
    /// # Errors
    ///
    /// The requester's memory failed.
    fn take_eight(&mut self) -> Result<[u8; 8], TransferFault>;

    /// Copies the data of a read to the requester.
    ///
    /// # Errors
    ///
    /// The side whose memory failed.
    fn give(&mut self, from: &[Segment]) -> Result<(), TransferFault>;
}

/// The side whose memory failed during a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferFault {
    Requester(Fault),
    Responder(Fault),
}

/// The data of a message, or the target of its response.
#[derive(Debug)]
pub(super) enum InProcess<'r> {
    /// Inline data of the request.
    Inline(&'r [u8]),
    /// Checked memory.
    Memory(&'r [Segment]),
}

impl Exchange for InProcess<'_> {
    fn take(&mut self, into: &[Segment]) -> Result<(), TransferFault> {
        match self {
            Self::Inline(bytes) => bytes::write_bytes(bytes, into).map_err(TransferFault::Responder),
            Self::Memory(segments) => bytes::transfer(segments, into).map_err(|fault| blame(End::From, fault)),
        }
    }

    fn take_eight(&mut self) -> Result<[u8; 8], TransferFault> {
        let mut value = [0; 8];
        match self {
            // The requester has checked the length.
            Self::Inline(bytes) => value.iter_mut().zip(bytes.iter()).for_each(|(to, from)| *to = *from),
            Self::Memory(segments) => bytes::read_bytes(segments, &mut value).map_err(TransferFault::Requester)?,
        }
        Ok(value)
    }

    fn give(&mut self, from: &[Segment]) -> Result<(), TransferFault> {
        match self {
            // The requester refuses reads into inline data.
            Self::Inline(_) => Ok(()),
            Self::Memory(segments) => bytes::transfer(from, segments).map_err(|fault| blame(End::To, fault)),
        }
    }
}

/// Converts the failed end of a copy to the side whose memory failed; `own` is the requester's end.
fn blame(own: End, (end, fault): (End, Fault)) -> TransferFault {
    if end == own { TransferFault::Requester(fault) } else { TransferFault::Responder(fault) }
}
