//! Requests in the send queue, as posted by a program.

use crate::mem::{Bind, Piece};
use crate::wire::address::Path;
use crate::wire::operation::Operation;

/// The destination of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destination {
    pub(crate) path: Path,
    pub(crate) number: u32,
    pub(crate) key: u32,
}

/// A request in the send queue. The vectors of completed requests are reused.
///
/// A request takes two cache lines, and a third one for datagrams.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct SendWork {
    pub(crate) wr_id: u64,
    pub(crate) operation: Operation,
    pub(crate) is_signaled: bool,
    pub(crate) is_solicited: bool,
    /// The fence flag: the request waits for earlier reads and atomics. The flag has no effect within a process, where
    /// each request ends before the next begins.
    pub(crate) is_fenced: bool,
    pub(crate) is_inline: bool,
    /// The SRQ number of XRC.
    pub(crate) srq_number: u32,
    /// The memory to send or to read into; empty if the data is inline.
    pub(crate) pieces: Vec<Piece>,
    /// The inline data.
    pub(crate) inline: Vec<u8>,
    pub(crate) bind: Option<Box<Bind>>,
    /// The destination of a datagram.
    pub(crate) destination: Option<Destination>,
}

impl Default for SendWork {
    fn default() -> Self {
        Self {
            wr_id: 0,
            operation: Operation::Send,
            is_signaled: false,
            is_solicited: false,
            is_fenced: false,
            is_inline: false,
            pieces: Vec::new(),
            inline: Vec::new(),
            destination: None,
            srq_number: 0,
            bind: None,
        }
    }
}

impl SendWork {
    /// Clears all fields, but keeps the memory of the vectors.
    pub(crate) fn clear(&mut self) {
        // Clears field by field, because this function runs for each request.
        let Self {
            wr_id,
            operation,
            is_signaled,
            is_solicited,
            is_fenced,
            is_inline,
            pieces,
            inline,
            destination,
            srq_number,
            bind,
        } = self;
        *wr_id = 0;
        *operation = Operation::Send;
        (*is_signaled, *is_solicited, *is_fenced, *is_inline) = (false, false, false, false);
        pieces.clear();
        inline.clear();
        *destination = None;
        *srq_number = 0;
        *bind = None;
    }

    /// The length of the request's data.
    pub(crate) fn length(&self) -> u64 {
        if self.is_inline {
            self.inline.len() as u64
        } else {
            self.pieces.iter().map(|piece| u64::from(piece.length)).sum()
        }
    }
}
