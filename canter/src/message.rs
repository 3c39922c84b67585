//! A received message.

use std::ops::Deref;

use crate::memory::Buf;

/// A message of the peer. It dereferences to its bytes. Dropping it frees its receive for further messages.
#[derive(Debug)]
pub struct Message {
    buf: Buf,
    imm: Option<u32>,
    written: Option<usize>,
}

impl Message {
    #[inline]
    pub(crate) fn new(buf: Buf, imm: Option<u32>, written: Option<usize>) -> Self {
        Self { buf, imm, written }
    }

    /// Returns the immediate data, if the peer sent any.
    pub fn imm(&self) -> Option<u32> {
        self.imm
    }

    /// Returns the number of bytes that the peer wrote to this side's memory, if the message is that of a
    /// [`write_imm`](crate::Connection::write_imm).
    pub fn written(&self) -> Option<usize> {
        self.written
    }

    /// Returns the buffer, for example to send it back. Dropping the buffer frees the receive.
    pub fn into_buf(self) -> Buf {
        self.buf
    }
}

impl Deref for Message {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.buf
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
