//! How many messages may be on their way: who sends more than there are receives for would have the device try again, and iWARP has no such thing.
//!
//! Each message with bytes takes a credit, which comes back with the next message of the other side's once the receive is posted anew.
//! Where there is none to go with, one without bytes takes the credits back as soon as they are half of all. Such a one takes no
//! credit: there are never more than [`SPARE`] of them unseen, as whoever has not seen them has no more than its credits to spend, of
//! which each of them brings half.

/// Receives that are kept for messages without bytes.
pub(super) const SPARE: u16 = 2;

/// What may be sent to the other side, and what it is to be told.
#[derive(Debug)]
pub(super) struct Credit {
    left: u16,
    most: u16,
    owed: u16,
    due: u16,
}

/// The other side gives back more than was taken.
#[derive(Debug)]
pub(super) struct Overdrawn;

impl Credit {
    /// Of two sides that have posted so many receives, more than [`SPARE`] each.
    pub(super) fn new(own: u16, theirs: u16) -> Self {
        let most = theirs.saturating_sub(SPARE);
        Self { left: most, most, owed: 0, due: (own.saturating_sub(SPARE)).div_ceil(2).max(1) }
    }

    /// Whether a message with bytes may go.
    pub(super) fn may_send(&self) -> bool {
        self.left > 0
    }

    /// One goes.
    pub(super) fn spend(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// So many came back.
    pub(super) fn earn(&mut self, count: u16) -> Result<(), Overdrawn> {
        let left = self.left.checked_add(count).filter(|left| *left <= self.most).ok_or(Overdrawn)?;
        self.left = left;
        Ok(())
    }

    /// A receive that had bytes is posted anew.
    pub(super) fn owe(&mut self) {
        self.owed = self.owed.saturating_add(1);
    }

    /// Whether a message without bytes has to go.
    pub(super) fn is_due(&self) -> bool {
        self.owed >= self.due
    }

    /// What the next message gives back.
    pub(super) fn settle(&mut self) -> u16 {
        std::mem::take(&mut self.owed)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// A side: what has come and was not looked at, and what was looked at and not read.
    struct Side {
        credit: Credit,
        receives: u16,
        unseen: VecDeque<(u16, bool)>,
        unread: u16,
    }

    impl Side {
        fn new(own: u16, theirs: u16) -> Self {
            Self { credit: Credit::new(own, theirs), receives: own, unseen: VecDeque::new(), unread: 0 }
        }

        /// Takes in what has come, and reads so much of it.
        fn look(&mut self, reads: u16, other: &mut Self) {
            for (credits, has_bytes) in self.unseen.drain(..) {
                self.credit.earn(credits).unwrap();
                self.unread += u16::from(has_bytes);
            }
            for _ in 0..reads.min(self.unread) {
                self.unread -= 1;
                self.credit.owe();
            }
            if self.credit.is_due() {
                other.comes(self.credit.settle(), false);
            }
        }

        fn send(&mut self, other: &mut Self) {
            if self.credit.may_send() {
                self.credit.spend();
                other.comes(self.credit.settle(), true);
            }
        }

        fn comes(&mut self, credits: u16, has_bytes: bool) {
            self.unseen.push_back((credits, has_bytes));
            assert!(self.unseen.len() + usize::from(self.unread) <= self.receives.into(), "no receive is left");
        }
    }

    proptest! {
        #[test]
        fn there_is_a_receive_for_each_message(
            (own, theirs) in (4..20_u16, 4..20_u16),
            steps in prop::collection::vec((any::<bool>(), 0..3_u8, 0..20_u16), 0..400),
        ) {
            let (mut one, mut other) = (Side::new(own, theirs), Side::new(theirs, own));
            for (is_one, what, reads) in steps {
                let (near, far) = if is_one { (&mut one, &mut other) } else { (&mut other, &mut one) };
                if what == 0 { near.look(reads, far) } else { near.send(far) }
            }
            // Whatever came before, who has read all lets the other side send again.
            for _ in 0..3 {
                one.look(u16::MAX, &mut other);
                other.look(u16::MAX, &mut one);
            }
            prop_assert!(one.credit.may_send() && other.credit.may_send());
        }
    }

    #[test]
    fn who_gives_back_more_than_was_taken_is_found_out() {
        let mut credit = Credit::new(16, 16);
        assert!(credit.earn(1).is_err());
        credit.spend();
        assert!(credit.earn(2).is_err() && credit.earn(u16::MAX).is_err());
        credit.earn(1).unwrap();
    }
}
