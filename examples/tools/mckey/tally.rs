//! The count of received messages of a queue pair.

use std::collections::BTreeMap;
use std::fmt;

/// The messages of one queue pair: the number expected, and the number received by sender.
#[derive(Debug)]
pub(crate) struct Tally {
    due: u32,
    begun: u32,
    pub(crate) counted: u32,
    senders: BTreeMap<u32, u32>,
}

impl Tally {
    pub(crate) fn new(due: u32) -> Self {
        Self { due, begun: 0, counted: 0, senders: BTreeMap::new() }
    }

    /// Returns the number of requests to post, so that `depth` requests, or all that remain, are outstanding. From now
    /// on, these requests count as outstanding.
    pub(crate) fn begin(&mut self, depth: u32) -> u32 {
        let outstanding = self.begun.saturating_sub(self.counted);
        let count = depth.saturating_sub(outstanding).min(self.due.saturating_sub(self.begun));
        self.begun += count;
        count
    }

    pub(crate) fn count(&mut self, sender: u32) {
        self.counted = self.counted.saturating_add(1);
        let of_sender = self.senders.entry(sender).or_default();
        *of_sender = of_sender.saturating_add(1);
    }

    pub(crate) fn missing(&self) -> u32 {
        self.due.saturating_sub(self.counted)
    }
}

/// `9 of 10 messages: 6 from 0x000012, 3 from 0x000013; 1 missing`.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} messages", self.counted, self.due)?;
        for (at, (sender, count)) in self.senders.iter().enumerate() {
            write!(f, "{} {count} from {sender:#08x}", if at == 0 { ":" } else { "," })?;
        }
        if self.missing() > 0 { write!(f, "; {} missing", self.missing()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_depth_and_the_remaining_messages_limit_outstanding_receives() {
        let mut tally = Tally::new(7);
        assert_eq!((tally.begin(3), tally.begin(3)), (3, 0));
        for expected in [2, 2] {
            (0..2).for_each(|_| tally.count(0x12));
            assert_eq!(tally.begin(3), expected);
        }
        tally.count(0x13);
        assert_eq!(tally.begin(3), 0);
        assert_eq!(tally.to_string(), "5 of 7 messages: 4 from 0x000012, 1 from 0x000013; 2 missing");
    }
}
