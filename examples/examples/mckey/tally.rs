//! Counting messages.

use std::collections::BTreeMap;
use std::fmt;

/// Messages of one queue pair: how many there are to be, and how many came, by the queue pair that sent them.
#[derive(Debug)]
pub(crate) struct Tally {
    due: u32,
    begun: u32,
    counted: u32,
    senders: BTreeMap<u32, u32>,
}

impl Tally {
    /// Nothing of so many.
    pub(crate) fn new(due: u32) -> Self {
        Self { due, begun: 0, counted: 0, senders: BTreeMap::new() }
    }

    /// How many requests are to be posted so that `depth` are outstanding, or as many as are due: they are from here on.
    pub(crate) fn begin(&mut self, depth: u32) -> u32 {
        let outstanding = self.begun.saturating_sub(self.counted);
        let count = depth.saturating_sub(outstanding).min(self.due.saturating_sub(self.begun));
        self.begun += count;
        count
    }

    /// One more.
    pub(crate) fn count(&mut self, sender: u32) {
        self.counted = self.counted.saturating_add(1);
        let of_sender = self.senders.entry(sender).or_default();
        *of_sender = of_sender.saturating_add(1);
    }

    /// How many there are.
    pub(crate) fn counted(&self) -> u32 {
        self.counted
    }

    /// How many are not there.
    pub(crate) fn missing(&self) -> u32 {
        self.due.saturating_sub(self.counted)
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.missing() == 0
    }
}

/// `9 of 10 messages: 6 from 0x000012, 3 from 0x000013; 1 did not come`.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} messages", self.counted, self.due)?;
        for (at, (sender, count)) in self.senders.iter().enumerate() {
            let before = if at == 0 { ": " } else { ", " };
            write!(f, "{before}{count} from {sender:#08x}")?;
        }
        match self.missing() {
            0 => Ok(()),
            missing => write!(f, "; {missing} did not come"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_as_many_as_there_is_room_and_messages_are_due() {
        let mut tally = Tally::new(7);
        assert_eq!((tally.begin(3), tally.begin(3)), (3, 0));
        for _ in 0..2 {
            tally.count(1);
        }
        assert_eq!(tally.begin(3), 2);
        for _ in 0..3 {
            tally.count(1);
        }
        // Seven in all.
        assert_eq!((tally.begin(3), tally.begin(3)), (2, 0));
        assert!(!tally.is_complete());
        for _ in 0..2 {
            tally.count(1);
        }
        assert!(tally.is_complete());
        assert_eq!(tally.begin(3), 0);
    }

    #[test]
    fn senders_are_told_apart_and_what_is_missing_is_told() {
        let mut tally = Tally::new(4);
        assert_eq!(tally.to_string(), "0 of 4 messages; 4 did not come");
        for sender in [0x13, 0x12, 0x13] {
            tally.count(sender);
        }
        assert_eq!((tally.counted(), tally.missing()), (3, 1));
        assert_eq!(tally.to_string(), "3 of 4 messages: 1 from 0x000012, 2 from 0x000013; 1 did not come");
        tally.count(0x12);
        assert_eq!(tally.to_string(), "4 of 4 messages: 2 from 0x000012, 2 from 0x000013");
    }
}
