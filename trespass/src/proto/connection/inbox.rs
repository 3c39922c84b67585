//! The received SENDs that the program has not read.

use std::collections::VecDeque;

use crate::memory::Buf;
use crate::proto::frame::{Frame, HEADER};

/// A queue that stores its first entry separately, because most messages are read before the next one arrives.
#[derive(Debug, Default)]
pub(super) struct Sends {
    first: Option<Buf>,
    /// If not zero, the first entry is one DATA frame with a payload of this length, of which nothing was read. Its
    /// buffer then still has the length of a segment.
    alone: u32,
    /// The later entries, each with its `alone`. This queue is empty unless `first` is present.
    rest: VecDeque<(Buf, u32)>,
}

impl Sends {
    /// Adds a SEND. If it consists of one DATA frame, `alone` may be the length of the payload, and the buffer then has
    /// the length of a segment.
    #[inline]
    pub(super) fn push(&mut self, send: Buf, alone: u32) {
        if self.is_empty() {
            (self.first, self.alone) = (Some(send), alone);
        } else {
            self.rest.push_back((send, alone));
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Copies the payload of the first entry to `out`, if the entry is marked as one DATA frame, and the frame fills
    /// `out` or nothing follows it. Returns the length and the buffer, which has the length of a segment.
    #[inline(always)]
    pub(super) fn take_alone(&mut self, out: &mut [u8]) -> Option<(usize, Buf)> {
        let count = self.alone as usize;
        if count == 0 || count != out.len() && !self.rest.is_empty() {
            return None;
        }
        let payload = self.first.as_ref()?.get(HEADER..HEADER + count)?;
        out.get_mut(..count)?.copy_from_slice(payload);
        Some((count, self.pop()?))
    }

    /// Removes the first entry. If it is marked as one DATA frame, its buffer has the length of a segment.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<Buf> {
        let first = self.first.take();
        self.alone = 0;
        if !self.rest.is_empty() {
            self.advance();
        }
        first
    }

    #[inline(never)]
    fn advance(&mut self) {
        if let Some((send, alone)) = self.rest.pop_front() {
            (self.first, self.alone) = (Some(send), alone);
        }
    }

    /// Returns the first entry, whose buffer has the length of its SEND.
    #[inline]
    pub(super) fn front(&mut self) -> Option<&mut Buf> {
        let first = self.first.as_mut()?;
        if self.alone != 0 {
            first.truncate(HEADER + self.alone as usize);
            self.alone = 0;
        }
        Some(first)
    }

    /// Returns the payload of the first entry's first frame, without the bytes that were read.
    #[inline]
    pub(super) fn payload(&mut self, read: usize, frame: &Frame) -> Option<&[u8]> {
        self.front()?.get(HEADER + read..frame.extent())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_leave_in_the_order_of_their_arrival() {
        let mut inbox = Sends::default();
        let mut next = 0..9_u8;
        let mut left = Vec::new();
        for (arrive, leave) in [(1, 1), (3, 2), (2, 1), (3, 5), (0, 1)] {
            next.by_ref().take(arrive).for_each(|byte| {
                let mut send = Buf::on_heap(1);
                send[0] = byte;
                inbox.push(send, 0);
            });
            left.extend((0..leave).map_while(|_| inbox.pop()).map(|send| send[0]));
            assert_eq!(inbox.front().map(|send| send[0]), (left.len() < next.start.into()).then_some(left.len() as u8));
        }
        assert_eq!(left, (0..9).collect::<Vec<u8>>());
        assert!(inbox.front().is_none() && inbox.rest.is_empty());
    }

    #[test]
    fn sends_of_one_frame_are_shortened_when_they_are_inspected() {
        let mut inbox = Sends::default();
        for alone in [5, 6, 0] {
            inbox.push(Buf::on_heap(100), alone);
        }
        let mut taken = |length| inbox.take_alone(&mut [0; 6][..length]).map(|(count, send)| (count, send.len()));
        assert_eq!([taken(6), taken(4), taken(5)], [None, None, Some((5, 100))]);
        assert_eq!(inbox.front().map(|send| send.len()), Some(HEADER + 6));
        assert!(inbox.take_alone(&mut [0; 6]).is_none());
        assert_eq!([inbox.pop(), inbox.pop()].map(|send| send.map(|send| send.len())), [Some(HEADER + 6), Some(100)]);
    }
}
