//! Requests in the send queue, as the program has posted them.

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

/// A request in the send queue. Later requests reuse the vectors of completed ones.
///
/// A request occupies two cache lines, and a datagram occupies a third one.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct SendWork {
    pub(crate) wr_id: u64,
    pub(crate) operation: Operation,
    pub(crate) is_signaled: bool,
    pub(crate) is_solicited: bool,
    /// The fence flag, which makes the request wait for earlier reads and atomics. If the peer is in the same process,
    /// the flag has no effect, because each request then completes before the next one begins.
    pub(crate) is_fenced: bool,
    pub(crate) is_inline: bool,
    /// The number of the XRC shared receive queue that the request addresses.
    pub(crate) srq_number: u32,
    /// The memory that is sent or into which data is read. It is empty if the data is inline.
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
    /// Clears all fields, but does not free the memory of the vectors.
    pub(crate) fn clear(&mut self) {
        // The fields are cleared one by one, because this function runs for each request.
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
