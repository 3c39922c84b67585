//! Splits the messages of this end into frames.

use super::ddp::{Header, Placement, UNTAGGED};
use super::fpdu;
use super::rdmap::{Opcode, QUEUES};
use super::terminate::Terminate;

/// The smallest value of the limit of segments. A segment must have space for a Read Request, which is never split, and
/// for some payload.
const MIN_SEGMENT: usize = UNTAGGED + 64;

/// The sending half of a connection.
#[derive(Debug)]
pub(super) struct Sender {
    has_crc: bool,
    max_segment: usize,
    /// The MSN of the next message in each untagged queue.
    msn: [u32; QUEUES],
}

impl Sender {
    /// Creates the sending half. `max_segment` is the length of the longest segment, see [`fpdu::max_segment`].
    pub(super) fn new(has_crc: bool, max_segment: usize) -> Self {
        Self { has_crc, max_segment: max_segment.clamp(MIN_SEGMENT, u16::MAX.into()), msn: [1; QUEUES] }
    }

    /// Appends a part of an untagged message. The part begins at `offset` in the message. No other message may be
    /// appended between the parts of a message.
    pub(super) fn untagged(
        &mut self,
        opcode: Opcode,
        invalidate: Option<u32>,
        offset: u32,
        payload: &[u8],
        is_last: bool,
        out: &mut Vec<u8>,
    ) {
        let queue = opcode.queue().unwrap_or_default();
        let msn = self.msn[queue as usize];
        self.cut(opcode, payload, is_last, out, |at| Placement::Untagged {
            invalidate: invalidate.unwrap_or_default(),
            queue,
            msn,
            offset: offset.wrapping_add(at as u32),
        });
        if is_last {
            self.msn[queue as usize] = msn.wrapping_add(1);
        }
    }

    /// Appends a whole message that is untagged and consists of fields.
    pub(super) fn fields(&mut self, opcode: Opcode, fields: &[u8], out: &mut Vec<u8>) {
        self.untagged(opcode, None, 0, fields, true, out);
    }

    /// Appends the message that ends the connection. Nothing may be sent after this message.
    pub(super) fn terminate(&mut self, terminate: &Terminate, out: &mut Vec<u8>) {
        self.fields(Opcode::Terminate, &terminate.bytes(), out);
    }

    /// Appends a part of a tagged message. The first byte of the part belongs at `offset` in the memory of the STag.
    pub(super) fn tagged(
        &mut self,
        opcode: Opcode,
        stag: u32,
        offset: u64,
        payload: &[u8],
        is_last: bool,
        out: &mut Vec<u8>,
    ) {
        let place = |at: usize| Placement::Tagged { stag, offset: offset.wrapping_add(at as u64) };
        self.cut(opcode, payload, is_last, out, place);
    }

    /// Appends a payload in as many frames as are needed, which is at least one.
    fn cut(
        &self,
        opcode: Opcode,
        payload: &[u8],
        is_last: bool,
        out: &mut Vec<u8>,
        placement: impl Fn(usize) -> Placement,
    ) {
        let mut at = 0;
        loop {
            let mut header = Header { opcode, is_last: false, placement: placement(at) };
            let end = payload.len().min(at + self.max_segment - header.bytes().len());
            header.is_last = is_last && end == payload.len();
            fpdu::emit(&header.bytes(), &payload[at..end], self.has_crc, out);
            at = end;
            if at == payload.len() {
                return;
            }
        }
    }
}
