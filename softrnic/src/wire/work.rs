//! Requests as a program posts them.

use std::sync::Arc;

use crate::mem::Window;
use crate::wire::address::Path;

/// A piece of local memory, as in `struct ibv_sge`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Send,
    /// The immediate is as the program gave it, big-endian by convention.
    SendImmediate {
        immediate: u32,
    },
    SendInvalidate {
        rkey: u32,
    },
    Write {
        address: u64,
        rkey: u32,
    },
    WriteImmediate {
        address: u64,
        rkey: u32,
        immediate: u32,
    },
    Read {
        address: u64,
        rkey: u32,
    },
    CompareSwap {
        address: u64,
        rkey: u32,
        compare: u64,
        swap: u64,
    },
    FetchAdd {
        address: u64,
        rkey: u32,
        add: u64,
    },
    /// The eight bytes are its inline data.
    AtomicWrite {
        address: u64,
        rkey: u32,
    },
    Flush {
        address: u64,
        rkey: u32,
        length: u64,
        placement: u8,
        level: u8,
    },
    LocalInvalidate {
        rkey: u32,
    },
    Bind,
}

impl Operation {
    /// Counts against `max_rd_atomic`, and is answered with data.
    pub(crate) fn is_read_or_atomic(self) -> bool {
        matches!(self, Self::Read { .. }) || self.is_atomic()
    }

    /// Whether its message brings data, and not only asks for it.
    pub(crate) fn has_data(self) -> bool {
        matches!(
            self,
            Self::Send
                | Self::SendImmediate { .. }
                | Self::SendInvalidate { .. }
                | Self::Write { .. }
                | Self::WriteImmediate { .. }
                | Self::AtomicWrite { .. }
        )
    }

    /// Gives the value that was there.
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }
}

/// What a bind request sets up (`struct ibv_mw_bind_info`, and the window with its new key).
#[derive(Clone, Debug)]
pub(crate) struct Bind {
    pub(crate) window: Arc<Window>,
    /// The key that the program chose, for windows of type 2; of type 1 what the verb gave.
    pub(crate) rkey: u32,
    /// The local key of the region.
    pub(crate) lkey: u32,
    pub(crate) address: u64,
    /// Zero unbinds.
    pub(crate) length: u64,
    pub(crate) access: u32,
}

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

/// A receive. Its vector is used again for the next.
#[derive(Debug, Default)]
pub(crate) struct ReceiveWork {
    pub(crate) wr_id: u64,
    pub(crate) pieces: Vec<Piece>,
}
