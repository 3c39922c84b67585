//! The requester's side of a message. The responder copies data from the requester's memory, or to it.

use crate::wire::bytes::{self, End, Fault, Segment};

/// The requester's side of a message that a responder handles. It is the source or the target of the data.
pub(crate) trait Exchange {
    /// Copies the data of the message into `into`, which has the same length.
    ///
    /// # Errors
    ///
    /// The side whose memory failed.
    fn take(&mut self, into: &[Segment]) -> Result<(), TransferFault>;

    /// Returns the eight bytes of an atomic write.
    ///
    /// # Errors
    ///
    /// Fails if the requester's memory cannot be read.
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

/// The memory that contains the data of a message, or into which the data of its response is copied.
#[derive(Debug)]
pub(super) enum InProcess<'r> {
    /// The inline data of the request.
    Inline(&'r [u8]),
    /// Memory that has passed all checks.
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
            // This cannot occur, because the requester refuses a read into inline data.
            Self::Inline(_) => Ok(()),
            Self::Memory(segments) => bytes::transfer(from, segments).map_err(|fault| blame(End::To, fault)),
        }
    }
}

/// Determines the side whose memory failed from the end of the copy that failed. `own` is the requester's end.
fn blame(own: End, (end, fault): (End, Fault)) -> TransferFault {
    if end == own { TransferFault::Requester(fault) } else { TransferFault::Responder(fault) }
}
