//! Requests in the send queue, as a program posts them.

use crate::mem::{Bind, Piece};
use crate::wire::address::Path;
use crate::wire::operation::Operation;

/// Where a datagram goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destination {
    pub(crate) path: Path,
    pub(crate) number: u32,
    pub(crate) key: u32,
}

/// A request in the send queue. Its vectors are used again for the next.
///
/// Two cache lines, and a third for datagrams.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct SendWork {
    pub(crate) wr_id: u64,
    pub(crate) operation: Operation,
    pub(crate) is_signaled: bool,
    pub(crate) is_solicited: bool,
    /// Waits for the reads and atomics before it. In the process each request ends before the next begins.
    pub(crate) is_fenced: bool,
    pub(crate) is_inline: bool,
    /// Of XRC.
    pub(crate) srq_number: u32,
    /// The memory that it sends, or reads into. Empty where it is inline.
    pub(crate) pieces: Vec<Piece>,
    /// The data itself, where it is inline.
    pub(crate) inline: Vec<u8>,
    pub(crate) bind: Option<Box<Bind>>,
    /// Of datagrams.
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
    /// As new, with the memory of its vectors.
    pub(crate) fn clear(&mut self) {
        // Field by field, as it is done for each request.
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

    /// The bytes of its data.
    pub(crate) fn length(&self) -> u64 {
        if self.is_inline {
            self.inline.len() as u64
        } else {
            self.pieces.iter().map(|piece| u64::from(piece.length)).sum()
        }
    }
}
