//! The received SENDs that the program has not read.

use std::collections::VecDeque;

use crate::memory::Buf;

/// A queue that stores its first entry separately, because most messages are read before the next one arrives.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    first: Option<Buf>,
    /// The later entries. This queue is empty unless `first` is present.
    rest: VecDeque<Buf>,
}

impl Inbox {
    #[inline]
    pub(super) fn push(&mut self, send: Buf) {
        if self.first.is_some() {
            self.rest.push_back(send);
        } else {
            self.first = Some(send);
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Buf> {
        let first = self.first.take();
        if !self.rest.is_empty() {
            self.first = self.rest.pop_front();
        }
        first
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&Buf> {
        self.first.as_ref()
    }

    #[inline]
    pub(super) fn front_mut(&mut self) -> Option<&mut Buf> {
        self.first.as_mut()
    }

    /// Whether nothing follows the first entry.
    #[inline]
    pub(super) fn is_last(&self) -> bool {
        self.rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_leave_in_the_order_of_their_arrival() {
        let mut inbox = Inbox::default();
        let mut next = 0..9_u8;
        let mut left = Vec::new();
        for (arrive, leave) in [(1, 1), (3, 2), (2, 1), (3, 5), (0, 1)] {
            next.by_ref().take(arrive).for_each(|byte| {
                let mut send = Buf::on_heap(1);
                send[0] = byte;
                inbox.push(send);
            });
            left.extend((0..leave).map_while(|_| inbox.pop()).map(|send| send[0]));
            assert_eq!(inbox.front().map(|send| send[0]), (left.len() < next.start.into()).then_some(left.len() as u8));
        }
        assert_eq!(left, (0..9).collect::<Vec<u8>>());
        assert!(inbox.front_mut().is_none() && inbox.is_last());
    }
}
