//! The credit, in bytes, for each of the two streams of a call.

use super::Violation;

/// Cost of an item in addition to its bytes, so that an empty item has a cost.
const ITEM: usize = 32;

/// Returns the credit that an item costs: its length plus [`ITEM`], but at most half a window. The receiver withholds
/// less than half a window, so the sender eventually has enough credit for any item.
pub(super) fn cost(length: usize, window: u32) -> u32 {
    u32::try_from(length + ITEM).unwrap_or(u32::MAX).min(window.div_ceil(2).max(1))
}

/// The credits of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// How many bytes this side may still send, and how many bytes the peer may still send.
    send: u32,
    receive: u32,
    /// How many bytes the program has taken for which the peer has not got the credit back yet.
    owed: u32,
    /// The peer's window.
    most: u32,
}

impl Flow {
    /// Creates the credits of a new call. Each direction starts with a full window: the first argument for sending, the
    /// second for receiving.
    pub(super) fn new((send, receive): (u32, u32)) -> Self {
        Self { send, receive, owed: 0, most: send }
    }

    /// Takes credit for an item; returns false if the credit is insufficient.
    pub(super) fn send(&mut self, cost: u32) -> bool {
        let has = self.send >= cost;
        if has {
            self.send -= cost;
        }
        has
    }

    /// Subtracts the cost of an item that arrived from the peer's credit.
    pub(super) fn receive(&mut self, cost: u32) -> Result<bool, Violation> {
        self.receive = self.receive.checked_sub(cost).ok_or(Violation::Credit("bytes of items"))?;
        Ok(true)
    }

    /// Adds credit that the peer returned.
    pub(super) fn give(&mut self, bytes: u32) -> Result<(), Violation> {
        let send = self.send.checked_add(bytes).filter(|send| *send <= self.most);
        self.send = send.ok_or(Violation::Unexpected("credit that was never used"))?;
        Ok(())
    }

    /// Records that the program took an item. When half of the window has been withheld, returns that credit so that
    /// the caller can grant it to the peer.
    pub(super) fn consumed(&mut self, cost: u32, window: u32) -> Option<u32> {
        self.owed = self.owed.saturating_add(cost);
        if self.owed < window.div_ceil(2) {
            return None;
        }
        let owed = std::mem::take(&mut self.owed);
        self.receive = self.receive.saturating_add(owed);
        Some(owed)
    }
}
