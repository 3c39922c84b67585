//! A connection after its set-up.

use super::code::Code;
use super::connect::{Agreed, Rtr};
use super::rdmap::{Atomic, AtomicRequest, AtomicResponse, Opcode, ReadRequest};
use super::receiver::{Event, Last, Receiver};
use super::sender::Sender;
use super::terminate::Terminate;

/// The STag of an RTR write. No memory belongs to it, because the write is empty.
const RTR_STAG: u32 = 1;

/// Both directions of a connection, without the buffer for the bytes that arrive. The owner sends the bytes that the
/// methods append, in order.
#[derive(Debug)]
pub(super) struct Stream {
    sender: Sender,
    receiver: Receiver,
    is_initiator: bool,
    /// Whether the peer has sent a frame.
    has_heard: bool,
    /// Whether there was no response yet to the RTR read. The QP receives neither this read nor the response.
    has_rtr_read: bool,
}

impl Stream {
    /// Creates the end of the initiator, and appends the RTR frame.
    pub(super) fn initiator(agreed: &Agreed, max_segment: usize, out: &mut Vec<u8>) -> Self {
        let mut stream = Self::new(agreed, max_segment, true);
        match agreed.rtr {
            Some(Rtr::Write) => stream.nudge(out),
            Some(Rtr::Read) => stream.read(0, RTR_STAG, 0, out),
            None => {}
        }
        stream
    }

    /// Creates the end of the responder.
    pub(super) fn responder(agreed: &Agreed, max_segment: usize) -> Self {
        Self::new(agreed, max_segment, false)
    }

    fn new(agreed: &Agreed, max_segment: usize, is_initiator: bool) -> Self {
        Self {
            sender: Sender::new(agreed.has_crc, max_segment),
            receiver: Receiver::new(agreed.ird),
            is_initiator,
            has_heard: false,
            has_rtr_read: agreed.rtr == Some(Rtr::Read),
        }
    }

    /// Whether this end may send: a responder must receive a frame first. Before this is true, the requests of its QP
    /// must wait.
    pub(super) fn may_send(&self) -> bool {
        self.is_initiator || self.has_heard
    }

    pub(super) fn is_initiator(&self) -> bool {
        self.is_initiator
    }

    /// Whether the peer has sent a frame.
    pub(super) fn has_heard(&self) -> bool {
        self.has_heard
    }

    /// Appends an empty write, which changes nothing at the peer.
    pub(super) fn nudge(&mut self, out: &mut Vec<u8>) {
        self.write(RTR_STAG, 0, &[], true, out);
    }

    /// Handles a segment that has arrived, and returns the event that it causes.
    ///
    /// # Errors
    ///
    /// Returns an error if the peer has violated a protocol. The Terminate message is then appended, and the owner must
    /// send it and close the connection.
    pub(super) fn segment<'s>(&mut self, segment: &'s [u8], out: &mut Vec<u8>) -> Result<Event<'s>, Code> {
        self.has_heard = true;
        match self.receiver.segment(segment) {
            Ok(Event::ReadRequest(read)) if self.has_rtr_read && read.length == 0 => {
                self.has_rtr_read = false;
                self.sender.tagged(Opcode::ReadResponse, read.sink_stag, read.sink_offset, &[], true, out);
                self.receiver.answered();
                Ok(Event::Nothing)
            }
            Ok(Event::ReadResponse { is_last: true, .. }) if self.has_rtr_read => {
                self.has_rtr_read = false;
                Ok(Event::Nothing)
            }
            Ok(event) => Ok(event),
            Err(terminate) => {
                self.sender.terminate(&terminate, out);
                Err(terminate.code)
            }
        }
    }

    /// Appends a part of a Send. The part begins at `offset` in the message.
    pub(super) fn send(&mut self, kind: Last, offset: u32, payload: &[u8], is_last: bool, out: &mut Vec<u8>) {
        let Last { is_solicited, invalidate } = kind;
        let opcode = Opcode::Send { is_solicited, invalidates: invalidate.is_some() };
        self.sender.untagged(opcode, invalidate, offset, payload, is_last, out);
    }

    /// Appends an Immediate Data message, which must follow the Write or precede the Send to which it belongs.
    pub(super) fn immediate(&mut self, bytes: [u8; 8], is_solicited: bool, out: &mut Vec<u8>) {
        self.sender.fields(Opcode::Immediate { is_solicited }, &bytes, out);
    }

    /// Appends a part of a Write. The first byte of the part belongs at `offset`.
    pub(super) fn write(&mut self, stag: u32, offset: u64, payload: &[u8], is_last: bool, out: &mut Vec<u8>) {
        self.sender.tagged(Opcode::Write, stag, offset, payload, is_last, out);
    }

    /// Appends the request of a read.
    pub(super) fn read(&mut self, length: u32, source_stag: u32, source_offset: u64, out: &mut Vec<u8>) {
        let sink_stag = self.receiver.expect_read(length);
        let request = ReadRequest { sink_stag, sink_offset: 0, length, source_stag, source_offset };
        self.sender.fields(Opcode::ReadRequest, &request.bytes(), out);
    }

    /// Appends a part of the response to the oldest request of the peer, which must be this read.
    pub(super) fn read_response(&mut self, read: &ReadRequest, offset: u32, payload: &[u8], out: &mut Vec<u8>) {
        let is_last = u64::from(offset) + payload.len() as u64 >= u64::from(read.length);
        let sink_offset = read.sink_offset.wrapping_add(offset.into());
        self.sender.tagged(Opcode::ReadResponse, read.sink_stag, sink_offset, payload, is_last, out);
        if is_last {
            self.receiver.answered();
        }
    }

    /// Appends the request of an atomic.
    pub(super) fn atomic(&mut self, stag: u32, offset: u64, kind: Atomic, out: &mut Vec<u8>) {
        let id = self.receiver.expect_atomic();
        self.sender.fields(Opcode::AtomicRequest, &AtomicRequest { id, stag, offset, kind }.bytes(), out);
    }

    /// Appends the response to the oldest request of the peer, which must be the atomic with this identifier.
    pub(super) fn atomic_response(&mut self, id: u32, original: u64, out: &mut Vec<u8>) {
        self.sender.fields(Opcode::AtomicResponse, &AtomicResponse { id, original }.bytes(), out);
        self.receiver.answered();
    }

    /// Ends the connection with an error that the QP has found. Nothing may be sent after this.
    pub(super) fn terminate(&mut self, terminate: &Terminate, out: &mut Vec<u8>) {
        self.sender.terminate(terminate, out);
    }
}
