//! The bytes of a message after the header of its MAD.

use crate::net::roce::mad::{At, BODY, field};

/// The bytes of a message. The parameter `AT` of the methods is the offset of a field, which has the most significant
/// byte first.
#[derive(Clone, Copy)]
pub(super) struct Body(pub(super) [u8; BODY]);

impl Body {
    pub(super) const ZERO: Self = Self([0; BODY]);

    pub(super) fn get<const AT: usize, const N: usize>(&self, at: At<AT>) -> [u8; N] {
        field(at, &self.0)
    }

    pub(super) fn put<const AT: usize, const N: usize>(&mut self, _: At<AT>, bytes: [u8; N]) {
        const { assert!(AT + N <= BODY, "a field is in its message") };
        self.0[AT..AT + N].copy_from_slice(&bytes);
    }

    pub(super) fn byte<const AT: usize>(&self) -> u8 {
        u8::from_be_bytes(self.get(At::<AT>))
    }

    pub(super) fn word<const AT: usize>(&self) -> u32 {
        u32::from_be_bytes(self.get(At::<AT>))
    }

    pub(super) fn put_word<const AT: usize>(&mut self, word: u32) {
        self.put(At::<AT>, word.to_be_bytes());
    }

    /// Returns a number of 24 bits, such as that of a QP.
    pub(super) fn word24<const AT: usize>(&self) -> u32 {
        let [a, b, c] = self.get(At::<AT>);
        u32::from_be_bytes([0, a, b, c])
    }

    pub(super) fn put_word24<const AT: usize>(&mut self, word: u32) {
        let [_, a, b, c] = word.to_be_bytes();
        self.put(At::<AT>, [a, b, c]);
    }

    pub(super) fn long<const AT: usize>(&self) -> u64 {
        u64::from_be_bytes(self.get(At::<AT>))
    }

    pub(super) fn put_long<const AT: usize>(&mut self, long: u64) {
        self.put(At::<AT>, long.to_be_bytes());
    }
}

/// The bits of a byte at `shift`, as many as the ones of `mask`.
pub(super) fn bits(byte: u8, shift: u32, mask: u8) -> u8 {
    byte >> shift & mask
}
