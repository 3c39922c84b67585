//! Byte credits of the two streams of a call.

use super::Violation;

/// What an item costs beside its bytes: an empty one is not free.
const ITEM: usize = 32;

/// What an item costs: its bytes and a header, but half a window at most. The receiver owes less than that, so any item can be sent.
pub(super) fn cost(length: usize, window: u32) -> u32 {
    u32::try_from(length + ITEM).unwrap_or(u32::MAX).min(window.div_ceil(2).max(1))
}

/// The credits of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// Bytes that this side may send, and that the peer may.
    send: u32,
    receive: u32,
    /// Bytes that the program has taken and the peer has not got back.
    owed: u32,
    /// The peer's window.
    most: u32,
}

impl Flow {
    /// Both windows are open: the peer's, this side's.
    pub(super) fn new((send, receive): (u32, u32)) -> Self {
        Self { send, receive, owed: 0, most: send }
    }

    /// Takes credit for an item; false if there is not enough.
    pub(super) fn send(&mut self, cost: u32) -> bool {
        let has = self.send >= cost;
        if has {
            self.send -= cost;
        }
        has
    }

    /// An item arrived.
    pub(super) fn receive(&mut self, cost: u32) -> Result<bool, Violation> {
        self.receive = self.receive.checked_sub(cost).ok_or(Violation::Credit("bytes of items"))?;
        Ok(true)
    }

    /// The peer gives credit back.
    pub(super) fn give(&mut self, bytes: u32) -> Result<(), Violation> {
        let send = self.send.checked_add(bytes).filter(|send| *send <= self.most);
        self.send = send.ok_or(Violation::Unexpected("credit that was never used"))?;
        Ok(())
    }

    /// An item was taken: returns the credit to give back, when half of the window is owed.
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
