//! Seals and opens messages: encrypts and decrypts them, with authentication.

use std::ops::DerefMut;

use super::block::{Block, HEADER, TRAILER};
use super::cipher::{Cipher, TAG};
use crate::error::{Error, Result};

/// The last byte of a message, which states its form.
const CONTROL: u8 = 0;
const CLEAR: u8 = 1;
const SEALED: u8 = 2;

/// A message that was opened. `B` is the type of the buffer in which it arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum Message<B> {
    /// The bytes of one or more control frames.
    Control(Vec<u8>),
    /// A block. The first `usize` bytes of the buffer are its payload.
    Block(Block, B, usize),
}

/// Seals the messages of one direction.
pub struct Sealer(Direction);

/// Opens the messages of one direction.
pub struct Opener {
    direction: Direction,
    /// Whether to reject blocks whose payload is not encrypted.
    sealed_only: bool,
}

struct Direction {
    cipher: Cipher,
    count: u64,
}

impl Direction {
    fn new(key: &[u8; 32]) -> Direction {
        Direction { cipher: Cipher::new(key), count: 0 }
    }

    fn nonce(&mut self) -> [u8; 12] {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.count.to_le_bytes());
        self.count += 1;
        nonce
    }

    /// Encrypts bytes in place, and returns their authentication tag.
    fn seal(&mut self, form: u8, bytes: &mut [u8]) -> [u8; TAG] {
        let nonce = self.nonce();
        self.cipher.seal(&nonce, &[form], bytes)
    }

    fn open(&mut self, form: u8, bytes: &mut [u8], tag: &[u8]) -> bool {
        let nonce = self.nonce();
        tag.try_into().is_ok_and(|tag| self.cipher.open(&nonce, &[form], bytes, tag))
    }
}

impl Sealer {
    pub(super) fn new(key: &[u8; 32]) -> Sealer {
        Sealer(Direction::new(key))
    }

    /// Creates the sealed message for one or more control frames.
    pub fn control(&mut self, frames: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(frames.len() + TAG + 1);
        message.extend_from_slice(frames);
        let tag = self.0.seal(CONTROL, &mut message);
        message.extend_from_slice(&tag);
        message.push(CONTROL);
        message
    }

    /// Completes the message of a block, and encrypts the payload if `payload` is set. The buffer must contain the
    /// payload, followed by [`TRAILER`] free bytes.
    pub fn block(&mut self, block: &Block, message: &mut [u8], payload: bool) {
        let Some(end) = message.len().checked_sub(TRAILER) else { return };
        let (form, from) = if payload { (SEALED, 0) } else { (CLEAR, end) };
        message[end..end + HEADER].copy_from_slice(&block.emit());
        let tag = self.0.seal(form, &mut message[from..end + HEADER]);
        message[end + HEADER..end + HEADER + TAG].copy_from_slice(&tag);
        message[end + HEADER + TAG] = form;
    }
}

impl Opener {
    pub(super) fn new(key: &[u8; 32]) -> Opener {
        Opener { direction: Direction::new(key), sealed_only: false }
    }

    /// Makes [`Opener::open`] reject blocks whose payload is not encrypted.
    pub fn require_sealed(&mut self) {
        self.sealed_only = true;
    }

    /// Opens a message in place. If the message is a block, this function does not compare the payload with its hash.
    ///
    /// # Errors
    ///
    /// The message is not the next message that the peer sealed with the same key.
    pub fn open<B: DerefMut<Target = [u8]>>(&mut self, mut message: B) -> Result<Message<B>> {
        let (&mut form, bytes) = message.split_last_mut().ok_or_else(altered)?;
        let (bytes, tag) = bytes.split_at_mut_checked(bytes.len().wrapping_sub(TAG)).ok_or_else(altered)?;
        let from = match form {
            CONTROL | SEALED => 0,
            CLEAR => bytes.len().checked_sub(HEADER).ok_or_else(altered)?,
            _ => return Err(altered()),
        };
        if form == CLEAR && self.sealed_only {
            return Err(Error::protocol("the peer sends unencrypted data; start it with --encrypt too"));
        }
        if !self.direction.open(form, &mut bytes[from..], tag) {
            return Err(altered());
        }
        if form == CONTROL {
            return Ok(Message::Control(bytes.to_vec()));
        }
        let (payload, header) = bytes.split_last_chunk::<HEADER>().ok_or_else(altered)?;
        let (block, length) = (Block::parse(header).ok_or_else(altered)?, payload.len());
        Ok(Message::Block(block, message, length))
    }
}

fn altered() -> Error {
    Error::protocol("a message was altered, lost, repeated or reordered in transit")
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").field("count", &self.0.count).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opener").field("count", &self.direction.count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::BlockKind;
    use super::*;

    fn ends() -> (Sealer, Opener) {
        (Sealer::new(&[1; 32]), Opener::new(&[1; 32]))
    }

    fn message(sealer: &mut Sealer, number: u8, seal: bool) -> Vec<u8> {
        let payload = vec![number; 100];
        let block = Block::of(BlockKind::Data, 3, u64::from(number) * 100, &payload);
        let mut message = [payload.as_slice(), &[0; TRAILER]].concat();
        sealer.block(&block, &mut message, seal);
        message
    }

    #[test]
    fn blocks_open_in_order_clear_and_sealed() {
        for seal in [false, true] {
            let (mut sealer, mut opener) = ends();
            for number in 0..3 {
                let message = message(&mut sealer, number, seal);
                assert_eq!(message[..100] == [number; 100], !seal);
                let Ok(Message::Block(block, buffer, length)) = opener.open(message) else { panic!() };
                assert_eq!((block.file, block.offset, length), (3, u64::from(number) * 100, 100));
                assert!(block.matches(&buffer[..length]));
            }
        }
    }

    #[test]
    fn lost_repeated_and_swapped_messages_do_not_open() {
        let (mut sealer, _) = ends();
        let messages: Vec<_> = (0..3).map(|number| message(&mut sealer, number, false)).collect();
        for order in [[1, 0], [0, 0], [0, 2]] {
            let (_, mut opener) = ends();
            let opened = order.map(|index: usize| opener.open(messages[index].clone()).is_ok());
            assert!(opened.contains(&false), "{order:?}");
        }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for seal in [false, true] {
            let whole = message(&mut ends().0, 5, seal);
            for bit in 0..whole.len() * 8 {
                let mut altered = whole.clone();
                altered[bit / 8] ^= 1 << (bit % 8);
                match ends().1.open(altered) {
                    Ok(Message::Block(block, buffer, length)) => {
                        assert!(!block.matches(&buffer[..length]), "bit {bit}")
                    }
                    Ok(Message::Control(_)) => panic!("bit {bit}"),
                    Err(_) => {}
                }
            }
        }
    }

    #[test]
    fn short_messages_are_refused() {
        for length in 0..TRAILER + 2 {
            for form in 0..4 {
                let mut message = vec![0; length];
                if let Some(last) = message.last_mut() {
                    *last = form;
                }
                assert!(ends().1.open(message).is_err());
            }
        }
    }
}
