//! What one side of a pair has sent, and the other one received.

use std::collections::VecDeque;

/// The record of what one side has sent to the other.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) sent: u64,
    pub(super) received: u64,
    lengths: VecDeque<usize>,
    /// Whether the sender has shut down or closed.
    pub(super) ended: bool,
}

/// Returns the byte at an offset of the stream that a side of a pair sends.
pub(super) fn byte(pair: usize, side: usize, at: u64) -> u8 {
    let mixed = (at ^ (pair as u64) << 40 ^ (side as u64) << 50).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

impl Log {
    pub(super) fn send(&mut self, length: usize) {
        self.sent += length as u64;
        self.lengths.push_back(length);
    }

    /// Checks that no received byte is lost, duplicated or out of order. If `bounded` is set, also checks that messages
    /// are whole.
    pub(super) fn receive(&mut self, pair: usize, side: usize, bytes: &[u8], bounded: bool) {
        if bounded {
            assert_eq!(self.lengths.pop_front(), Some(bytes.len()), "length of a message");
        }
        let right = bytes.iter().enumerate().all(|(index, &got)| got == byte(pair, side, self.received + index as u64));
        assert!(right, "bytes {}..{} of pair {pair}, side {side}", self.received, self.received + bytes.len() as u64);
        self.received += bytes.len() as u64;
        assert!(self.received <= self.sent);
    }

    pub(super) fn is_complete(&self, bounded: bool) -> bool {
        self.received == self.sent && (!bounded || self.lengths.is_empty())
    }
}
