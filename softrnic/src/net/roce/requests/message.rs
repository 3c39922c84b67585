//! A message of the requester.

use std::collections::VecDeque;

use crate::wire::message::Reply;
use crate::wire::operation::Operation;
use crate::wire::packet::{MAX_PAYLOAD, psn_after};

/// A message of the QP.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) psn: u32,
    pub(super) packets: u32,
    pub(super) attempt: u32,
    pub(super) operation: Operation,
    pub(super) is_solicited: bool,
    pub(super) queue: u32,
    pub(super) length: u64,
    /// The parts that the QP has passed so far. All have [`MAX_PAYLOAD`] bytes except for the last one.
    pub(super) parts: VecDeque<Vec<u8>>,
    /// The number of parts that were removed because they are acknowledged.
    pub(super) removed: usize,
    /// The number of bytes that the QP has passed so far.
    pub(super) passed: u64,
    /// The answer, if the message needs one of its own and it has arrived.
    pub(super) reply: Option<Reply>,
}

impl Message {
    pub(super) fn end(&self) -> u32 {
        psn_after(self.psn, self.packets)
    }

    /// Whether the peer responds to the message itself, instead of acknowledging it.
    pub(super) fn has_answer(&self) -> bool {
        let operation = self.operation;
        operation.is_read_or_atomic() || matches!(operation, Operation::AtomicWrite { .. } | Operation::Flush { .. })
    }

    /// The payload of the packet at this index, if the QP has passed it.
    pub(super) fn payload(&self, index: u32, mtu: u32) -> Option<&[u8]> {
        if !self.operation.has_data() || self.length == 0 {
            return Some(&[]);
        }
        let start = u64::from(index) * u64::from(mtu);
        let end = (start + u64::from(mtu)).min(self.length);
        if end > self.passed {
            return None;
        }
        let part = (start / u64::from(MAX_PAYLOAD)) as usize;
        let from = (start % u64::from(MAX_PAYLOAD)) as usize;
        self.parts.get(part.checked_sub(self.removed)?)?.get(from..from + (end - start) as usize)
    }
}
