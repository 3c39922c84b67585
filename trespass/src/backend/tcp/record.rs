//! The records of the stream, which follow the handshakes.
//!
//! ```text
//! length u32 < 2^31                          `length` bytes     a SEND
//! READ u32              key u32                                 requests the message with this key
//! ANSWER u32            key u32   length u32  `length` bytes    that message
//! ```
//!
//! In an RTS, the key is the number of the message. The address states whether the receiver must send READ
//! ([`READ_FIRST`]), or whether the ANSWER follows without a READ ([`PUSHED`]). A sender pushes at most [`WINDOW`]
//! bytes that the receiver has not acknowledged by DONE. If `reads` is 0 in the hello of a side, this side does not
//! READ, and gets no RTS.

use crate::memory::Buf;

const READ: u32 = 1 << 31;
const ANSWER: u32 = READ | 1;
/// Values of the address in an RTS.
pub(super) const READ_FIRST: u64 = 0;
pub(super) const PUSHED: u64 = 1;
/// Maximum number of bytes that are sent without a READ. The limit is needed because these bytes use memory of the
/// receiver before its program reads them.
pub(super) const WINDOW: usize = 2 << 20;
/// Shorter messages are SENDs. So the window also limits the number of messages that are sent without a READ.
pub(super) const SHORTEST: usize = 4 << 10;
/// Length of the longest head, in bytes.
const LONGEST: usize = 12;

/// A record to be written.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) head: [u8; LONGEST],
    /// Length of the head, in bytes.
    pub(super) length: usize,
    pub(super) body: Option<Buf>,
}

/// The head of a received record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    Send(usize),
    Read(u32),
    Answer(u32, usize),
}

impl Record {
    pub(super) fn send(message: Buf) -> Record {
        Record::new([message.len() as u32, 0, 0], 1, Some(message))
    }

    pub(super) fn read(key: u32) -> Record {
        Record::new([READ, key, 0], 2, None)
    }

    pub(super) fn answer(key: u32, message: Buf) -> Record {
        Record::new([ANSWER, key, message.len() as u32], 3, Some(message))
    }

    fn new(fields: [u32; 3], count: usize, body: Option<Buf>) -> Record {
        let mut head = [0; LONGEST];
        for (bytes, field) in head.as_chunks_mut::<4>().0.iter_mut().zip(fields) {
            *bytes = field.to_le_bytes();
        }
        Record { head, length: 4 * count, body }
    }

    pub(super) fn is_send(&self) -> bool {
        self.length == 4
    }

    /// Returns the key of the message that an ANSWER contains, or `None` for other records.
    pub(super) fn answers(&self) -> Option<u32> {
        let [_, _, _, _, a, b, c, d, ..] = self.head;
        self.is_answer().then(|| u32::from_le_bytes([a, b, c, d]))
    }

    pub(super) fn is_answer(&self) -> bool {
        self.length == LONGEST
    }

    /// Returns the total length of the head and the body, in bytes.
    pub(super) fn extent(&self) -> usize {
        self.length + self.body.as_ref().map_or(0, |body| body.len())
    }
}

/// Returns the length of the head that begins with these bytes. If its first field is incomplete, returns the length of
/// that field.
pub(super) fn head_length(bytes: &[u8]) -> usize {
    match bytes.first_chunk().map(|kind| u32::from_le_bytes(*kind)) {
        Some(READ) => 8,
        Some(ANSWER) => LONGEST,
        _ => 4,
    }
}

impl Head {
    /// Returns the head, if the bytes contain all of it.
    pub(super) fn parse(bytes: &[u8]) -> Option<Head> {
        let field = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        match field(0)? {
            READ => Some(Head::Read(field(4)?)),
            ANSWER => Some(Head::Answer(field(4)?, field(8)? as usize)),
            length => Some(Head::Send(length as usize)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_the_wire_byte_by_byte() {
        let message = || Buf::on_heap(70_000);
        let records = [
            (Record::send(message()), Head::Send(70_000), 4),
            (Record::read(u32::MAX), Head::Read(u32::MAX), 8),
            (Record::answer(7, message()), Head::Answer(7, 70_000), 12),
        ];
        for (record, head, length) in records {
            let mut bytes = Vec::new();
            for &byte in &record.head[..record.length] {
                assert!(bytes.len() < head_length(&bytes));
                assert_eq!(Head::parse(&bytes), None);
                bytes.push(byte);
            }
            assert_eq!((Head::parse(&bytes), head_length(&bytes), bytes.len()), (Some(head), length, length));
            assert_eq!(record.extent(), length + record.body.map_or(0, |body| body.len()));
        }
    }
}
