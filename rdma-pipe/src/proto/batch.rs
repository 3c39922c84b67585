//! Several frames in one message.

use super::frame::Frame;
use crate::error::Result;

/// The maximum length in bytes of several frames in one message, which fits into a receive buffer of a device. A longer
/// frame is a message of its own.
const LONGEST: usize = (16 << 10) - 64;

/// Frames that are sent in one message, in order.
#[derive(Debug, Default)]
pub struct Batch(Vec<u8>);

impl Batch {
    /// Adds an encoded frame. Returns whether the message must be sent first, and does not add the frame then.
    #[must_use]
    pub fn push(&mut self, frame: &[u8]) -> bool {
        let is_full = !self.0.is_empty() && self.0.len() + frame.len() > LONGEST;
        if !is_full {
            self.0.extend_from_slice(frame);
        }
        is_full
    }

    /// Whether no frame waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bytes of the message, which has at least one frame, and begins another one.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        Some(std::mem::take(&mut self.0)).filter(|bytes| !bytes.is_empty())
    }
}

/// The frames of a received message.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    at: usize,
}

impl Frames {
    /// Takes the bytes of a message.
    pub fn new(bytes: Vec<u8>) -> Frames {
        Frames { bytes, at: 0 }
    }

    /// Whether all frames were taken.
    pub fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Takes the next frame, which a message always has.
    ///
    /// # Errors
    ///
    /// The bytes begin with no frame.
    pub fn take(&mut self) -> Result<Frame> {
        let (frame, rest) = Frame::parse_first(self.bytes.get(self.at..).unwrap_or_default())?;
        self.at = self.bytes.len() - rest.len();
        Ok(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::Have;

    #[test]
    fn frames_of_a_message_arrive_in_order() {
        let frames: Vec<Frame> = (0..5_000).map(|id| Frame::Have(vec![(id, Have::All); id as usize % 7])).collect();
        let (mut batch, mut messages) = (Batch::default(), Vec::new());
        for frame in &frames {
            let bytes = frame.emit();
            if batch.push(&bytes) {
                messages.extend(batch.take());
                assert!(!batch.push(&bytes));
            }
        }
        messages.extend(batch.take());
        assert!(batch.is_empty() && batch.take().is_none());
        assert!(messages.len() < 10 && messages.iter().all(|bytes| bytes.len() <= LONGEST), "{}", messages.len());
        let mut arrived = Vec::new();
        for bytes in messages {
            let mut message = Frames::new(bytes);
            while !message.is_empty() {
                arrived.push(message.take().unwrap());
            }
        }
        assert_eq!(arrived, frames);
    }

    #[test]
    fn long_frame_is_a_message_of_its_own() {
        let long = Frame::Have(vec![(u32::MAX, Have::Until(u64::MAX)); LONGEST]).emit();
        let mut batch = Batch::default();
        assert!(!batch.push(&long));
        assert!(batch.push(&Frame::Ping.emit()));
        assert_eq!(batch.take(), Some(long));
    }

    #[test]
    fn cut_and_empty_messages_are_refused() {
        let bytes = [Frame::Ping.emit(), Frame::Have(vec![(1, Have::All)]).emit()].concat();
        for length in 2..bytes.len() {
            let mut message = Frames::new(bytes[..length].to_vec());
            assert_eq!(message.take().unwrap(), Frame::Ping);
            assert!(message.take().is_err(), "{length}");
        }
        assert!(Frames::new(Vec::new()).take().is_err());
    }
}
