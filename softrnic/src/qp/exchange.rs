//! The requester's end of a message: its memory, to copy from and to.

use crate::wire::bytes::{self, End, Fault, Segment};

/// The requester's end of a message while a responder handles it: where its data is, or goes.
pub(crate) trait Exchange {
    /// Copies the message's data, of which there are as many bytes as in `into` together, in order.
    ///
    /// # Errors
    ///
    /// On which side memory could not be used.
    fn take(&mut self, into: &[Segment]) -> Result<(), TransferFault>;

    /// Copies the eight bytes of an atomic write.
    ///
    /// # Errors
    ///
    /// The requester's memory could not be used.
    fn take_eight(&mut self) -> Result<[u8; 8], TransferFault>;

    /// Copies to where the message wants its data: the answer to a read.
    ///
    /// # Errors
    ///
    /// On which side memory could not be used.
    fn give(&mut self, from: &[Segment]) -> Result<(), TransferFault>;
}

/// Whose memory failed during a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferFault {
    Requester(Fault),
    Responder(Fault),
}

/// What a message carries, or where its answer goes.
#[derive(Debug)]
pub(super) enum InProcess<'r> {
    /// Bytes that the request itself has.
    Inline(&'r [u8]),
    /// Memory that has passed the checks.
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
            // The requester has seen that there are eight.
            Self::Inline(bytes) => value.iter_mut().zip(bytes.iter()).for_each(|(to, from)| *to = *from),
            Self::Memory(segments) => bytes::read_bytes(segments, &mut value).map_err(TransferFault::Requester)?,
        }
        Ok(value)
    }

    fn give(&mut self, from: &[Segment]) -> Result<(), TransferFault> {
        match self {
            // Nothing is read into inline data; the requester refuses it before.
            Self::Inline(_) => Ok(()),
            Self::Memory(segments) => bytes::transfer(from, segments).map_err(|fault| blame(End::To, fault)),
        }
    }
}

/// Whose memory failed, of a copy in which the requester has the end `own`.
fn blame(own: End, (end, fault): (End, Fault)) -> TransferFault {
    if end == own { TransferFault::Requester(fault) } else { TransferFault::Responder(fault) }
}
