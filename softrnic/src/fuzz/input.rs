//! Reads the bytes of an input as the values of a script.

/// The unread bytes of a script, followed by endless zeros.
#[derive(Debug)]
pub(crate) struct Input<'i>(pub(crate) &'i [u8]);

impl<'i> Input<'i> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next `length` bytes, or the remaining ones if there are fewer.
    pub(crate) fn bytes(&mut self, length: usize) -> &'i [u8] {
        let (bytes, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let bytes = self.bytes(N);
        array[..bytes.len()].copy_from_slice(bytes);
        array
    }

    pub(crate) fn byte(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    pub(crate) fn short(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn word(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Reads `N` words; the rest of the array is zero.
    pub(crate) fn words<const N: usize, const ALL: usize>(&mut self) -> [u64; ALL] {
        std::array::from_fn(|index| if index < N { self.word() } else { 0 })
    }
}
