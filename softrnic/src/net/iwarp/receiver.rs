//! Checks the segments that arrive against the state of the connection.

use std::collections::VecDeque;

use super::code::Code;
use super::ddp::{self, Header, Placement};
use super::rdmap::{AtomicRequest, AtomicResponse, Opcode, QUEUES, ReadRequest};
use super::terminate::{Cause, Terminate};

/// The receiving half of a connection. It does not access the memory of the program. The QP checks the key, the bounds
/// and the access rights of each event.
#[derive(Debug)]
pub(super) struct Receiver {
    /// The MSN of the current message in each untagged queue.
    msn: [u32; QUEUES],
    /// The opcode of the message that has partly arrived, if any. No segment of another message may arrive between the
    /// segments of a message.
    open: Option<Opcode>,
    /// The offset at which the next segment of this message must start, if the message is untagged.
    offset: u32,
    /// The requests of this end to which the peer has not completely responded, in order.
    pending: VecDeque<Pending>,
    next_tag: u32,
    /// The maximum number of requests of the peer to which this end has not responded, and their current number.
    ird: usize,
    unanswered: usize,
    /// Whether the connection has ended with an error of either end.
    is_over: bool,
}

#[derive(Debug)]
enum Pending {
    Read { stag: u32, length: u32, received: u32 },
    Atomic { id: u32 },
}

/// The event that a segment causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event<'s> {
    /// A part of a Send. Only the last part determines the length of the message.
    Send {
        offset: u32,
        payload: &'s [u8],
        last: Option<Last>,
    },
    /// The eight bytes of an Immediate Data message.
    Immediate {
        bytes: [u8; 8],
        is_solicited: bool,
    },
    /// A part of a Write.
    Write {
        stag: u32,
        offset: u64,
        payload: &'s [u8],
        is_last: bool,
    },
    ReadRequest(ReadRequest),
    AtomicRequest(AtomicRequest),
    /// A part of the response to the oldest request of this end, which is a read.
    ReadResponse {
        offset: u32,
        payload: &'s [u8],
        is_last: bool,
    },
    AtomicResponse {
        original: u64,
    },
    /// The peer has ended the connection.
    Terminated(Code),
    /// Nothing is to be done, because the segment is an empty Write or the connection has already ended.
    Nothing,
}

/// What the last segment of a Send contains in addition to its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Last {
    pub(super) is_solicited: bool,
    pub(super) invalidate: Option<u32>,
}

impl Receiver {
    /// Creates the receiving half. `ird` is the number of inbound reads and atomics on which both ends have agreed.
    pub(super) fn new(ird: u16) -> Self {
        Self {
            msn: [1; QUEUES],
            open: None,
            offset: 0,
            pending: VecDeque::new(),
            next_tag: 1,
            // An RTR frame may be a read although the peer has announced no reads.
            ird: usize::from(ird.max(1)),
            unanswered: 0,
            is_over: false,
        }
    }

    /// Records that this end sends a read, to which the peer will respond. Returns the sink STag of the Read Request.
    /// The sink offset is zero.
    pub(super) fn expect_read(&mut self, length: u32) -> u32 {
        let stag = self.tag();
        self.pending.push_back(Pending::Read { stag, length, received: 0 });
        stag
    }

    /// Records that this end sends an atomic, to which the peer will respond. Returns the identifier of the Atomic
    /// Request.
    pub(super) fn expect_atomic(&mut self) -> u32 {
        let id = self.tag();
        self.pending.push_back(Pending::Atomic { id });
        id
    }

    fn tag(&mut self) -> u32 {
        let tag = self.next_tag;
        self.next_tag = tag.wrapping_add(1);
        tag
    }

    /// Records that this end has responded to a request of the peer.
    pub(super) fn answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// Handles a segment.
    ///
    /// # Errors
    ///
    /// Returns the Terminate message that this end must send before it closes the connection.
    pub(super) fn segment<'s>(&mut self, segment: &'s [u8]) -> Result<Event<'s>, Terminate> {
        if self.is_over {
            return Ok(Event::Nothing);
        }
        let Some(&first) = segment.first() else {
            self.is_over = true;
            return Err(Terminate::new(Code::FRAME));
        };
        let result = Header::parse(segment).and_then(|(header, payload)| self.event(header, payload));
        if matches!(result, Err(_) | Ok(Event::Terminated(_))) {
            self.is_over = true;
        }
        result.map_err(|code| {
            let is_read = matches!(Header::parse(segment), Ok((Header { opcode: Opcode::ReadRequest, .. }, _)));
            Terminate { code, cause: Some(Cause::new(segment, ddp::header_length(first), is_read)) }
        })
    }

    fn event<'s>(&mut self, header: Header, payload: &'s [u8]) -> Result<Event<'s>, Code> {
        let Header { opcode, is_last, placement } = header;
        if opcode == Opcode::Terminate {
            // The Terminate message may interrupt a message that is not complete.
            self.offset = 0;
        } else if self.open.is_some_and(|open| open != opcode) {
            return Err(Code::OPCODE);
        }
        self.open = (!is_last).then_some(opcode);
        match placement {
            Placement::Tagged { stag, offset } => self.tagged(header, (stag, offset), payload),
            Placement::Untagged { invalidate, queue, msn, offset } => {
                let at = self.place(queue, (msn, offset), payload, is_last)?;
                self.untagged(opcode, invalidate, at, payload, is_last)
            }
        }
    }

    fn tagged<'s>(&mut self, header: Header, (stag, offset): (u32, u64), payload: &'s [u8]) -> Result<Event<'s>, Code> {
        offset.checked_add(payload.len() as u64).ok_or(Code::TAGGED_WRAP)?;
        if header.opcode == Opcode::Write {
            let is_empty = payload.is_empty();
            return Ok(if is_empty {
                Event::Nothing
            } else {
                Event::Write { stag, offset, payload, is_last: header.is_last }
            });
        }
        let Some(Pending::Read { stag: expected, length, received }) = self.pending.front_mut() else {
            return Err(Code::TAGGED_STAG);
        };
        if stag != *expected {
            return Err(Code::TAGGED_STAG);
        }
        // The conversion is lossless, because a segment has at most 64 KiB.
        let (at, end) = (*received, u64::from(*received) + payload.len() as u64);
        let is_complete = end == u64::from(*length);
        if offset != u64::from(at) || end > u64::from(*length) || is_complete != header.is_last {
            return Err(Code::TAGGED_BOUNDS);
        }
        *received = end as u32;
        if is_complete {
            self.pending.pop_front();
        }
        Ok(Event::ReadResponse { offset: at, payload, is_last: is_complete })
    }

    /// Checks the position of an untagged segment, and advances the position that is expected next. Returns the offset
    /// of the segment in its message.
    fn place(&mut self, queue: u32, (msn, offset): (u32, u32), payload: &[u8], is_last: bool) -> Result<u32, Code> {
        let expected = self.msn.get_mut(queue as usize).ok_or(Code::QUEUE)?;
        if msn != *expected {
            return Err(Code::MSN);
        }
        let at = self.offset;
        if offset != at {
            return Err(Code::OFFSET);
        }
        let end = at.checked_add(payload.len() as u32).ok_or(Code::TOO_LONG)?;
        if is_last {
            *expected = expected.wrapping_add(1);
        }
        self.offset = if is_last { 0 } else { end };
        Ok(at)
    }

    fn untagged<'s>(
        &mut self,
        opcode: Opcode,
        invalidate: u32,
        offset: u32,
        payload: &'s [u8],
        is_last: bool,
    ) -> Result<Event<'s>, Code> {
        if let Opcode::Send { is_solicited, invalidates } = opcode {
            let last = Last { is_solicited, invalidate: invalidates.then_some(invalidate) };
            return Ok(Event::Send { offset, payload, last: is_last.then_some(last) });
        }
        if !is_last || offset != 0 {
            return Err(Code::TOO_LONG);
        }
        match opcode {
            Opcode::ReadRequest | Opcode::AtomicRequest if self.unanswered >= self.ird => Err(Code::NO_BUFFER),
            Opcode::ReadRequest => {
                let request = ReadRequest::parse(payload).ok_or(Code::UNSPECIFIED)?;
                self.unanswered += 1;
                Ok(Event::ReadRequest(request))
            }
            Opcode::AtomicRequest => {
                let request = AtomicRequest::parse(payload).ok_or(Code::UNSPECIFIED)?;
                self.unanswered += 1;
                Ok(Event::AtomicRequest(request))
            }
            Opcode::AtomicResponse => {
                let response = AtomicResponse::parse(payload).ok_or(Code::UNSPECIFIED)?;
                match self.pending.pop_front() {
                    Some(Pending::Atomic { id }) if id == response.id => {
                        Ok(Event::AtomicResponse { original: response.original })
                    }
                    _ => Err(Code::NO_BUFFER),
                }
            }
            Opcode::Immediate { is_solicited } => {
                let bytes = payload.try_into().map_err(|_| Code::UNSPECIFIED)?;
                Ok(Event::Immediate { bytes, is_solicited })
            }
            Opcode::Terminate => Ok(Event::Terminated(Terminate::parse(payload).unwrap_or(Code::UNSPECIFIED))),
            Opcode::Send { .. } | Opcode::Write | Opcode::ReadResponse => Err(Code::OPCODE),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SEND: Opcode = Opcode::Send { is_solicited: false, invalidates: false };

    fn untagged(opcode: Opcode, msn: u32, offset: u32, is_last: bool, payload: &[u8]) -> Vec<u8> {
        let queue = opcode.queue().unwrap();
        let placement = Placement::Untagged { invalidate: 0, queue, msn, offset };
        [&Header { opcode, is_last, placement }.bytes()[..], payload].concat()
    }

    fn tagged(opcode: Opcode, stag: u32, offset: u64, is_last: bool, payload: &[u8]) -> Vec<u8> {
        let placement = Placement::Tagged { stag, offset };
        [&Header { opcode, is_last, placement }.bytes()[..], payload].concat()
    }

    /// Returns the error that the last segment causes. The segments before it must be accepted.
    fn error(receiver: &mut Receiver, segments: &[Vec<u8>]) -> Code {
        let (last, before) = segments.split_last().unwrap();
        before.iter().for_each(|segment| assert!(receiver.segment(segment).is_ok()));
        receiver.segment(last).unwrap_err().code
    }

    #[test]
    fn segments_out_of_order_are_refused() {
        let first = untagged(SEND, 1, 0, false, b"abc");
        let fails = |segments: &[Vec<u8>]| error(&mut Receiver::new(1), segments);
        assert_eq!(fails(&[untagged(SEND, 2, 0, true, b"")]), Code::MSN);
        assert_eq!(fails(&[untagged(SEND, 1, 1, true, b"")]), Code::OFFSET);
        assert_eq!(fails(&[first.clone(), untagged(SEND, 1, 2, true, b"")]), Code::OFFSET);
        assert_eq!(fails(&[first.clone(), untagged(SEND, 2, 0, true, b"")]), Code::MSN);
        assert_eq!(fails(&[first.clone(), tagged(Opcode::Write, 1, 0, true, b"")]), Code::OPCODE);
        assert_eq!(fails(&[tagged(Opcode::Write, 1, 0, false, b"x"), first]), Code::OPCODE);
        assert_eq!(fails(&[untagged(Opcode::Terminate, 1, 0, false, b"")]), Code::TOO_LONG);
        assert_eq!(fails(&[tagged(Opcode::Write, 1, u64::MAX, true, b"x")]), Code::TAGGED_WRAP);
        assert_eq!(fails(&[Vec::new()]), Code::FRAME);
    }

    #[test]
    fn unfinished_message_may_end_with_a_termination() {
        let reason = Terminate::new(Code::ACCESS).bytes();
        for first in [untagged(SEND, 1, 0, false, b"half"), tagged(Opcode::Write, 1, 0, false, b"half")] {
            let mut receiver = Receiver::new(1);
            assert!(receiver.segment(&first).is_ok());
            let terminate = untagged(Opcode::Terminate, 1, 0, true, &reason);
            assert_eq!(receiver.segment(&terminate), Ok(Event::Terminated(Code::ACCESS)));
        }
    }

    #[test]
    fn read_response_that_was_not_asked_for_is_refused() {
        let fails = |response: Vec<u8>| {
            let mut receiver = Receiver::new(1);
            assert_eq!(receiver.expect_read(4), 1);
            error(&mut receiver, &[response])
        };
        let answer = Opcode::ReadResponse;
        assert_eq!(fails(tagged(answer, 2, 0, true, b"data")), Code::TAGGED_STAG);
        assert_eq!(fails(tagged(answer, 1, 1, true, b"data")), Code::TAGGED_BOUNDS);
        assert_eq!(fails(tagged(answer, 1, 0, true, b"more data")), Code::TAGGED_BOUNDS);
        assert_eq!(fails(tagged(answer, 1, 0, true, b"dat")), Code::TAGGED_BOUNDS);
        assert_eq!(fails(tagged(answer, 1, 0, false, b"data")), Code::TAGGED_BOUNDS);
        assert_eq!(error(&mut Receiver::new(1), &[tagged(answer, 1, 0, true, b"")]), Code::TAGGED_STAG);
        let atomic = AtomicResponse { id: 1, original: 0 };
        assert_eq!(fails(untagged(Opcode::AtomicResponse, 1, 0, true, &atomic.bytes())), Code::NO_BUFFER);
    }

    #[test]
    fn reads_beyond_the_agreed_number_are_refused() {
        let request = ReadRequest { sink_stag: 1, sink_offset: 0, length: 9, source_stag: 2, source_offset: 3 };
        let segment = |msn| untagged(Opcode::ReadRequest, msn, 0, true, &request.bytes());
        let mut receiver = Receiver::new(2);
        assert_eq!(receiver.segment(&segment(1)), Ok(Event::ReadRequest(request)));
        assert!(receiver.segment(&segment(2)).is_ok());
        receiver.answered();
        assert!(receiver.segment(&segment(3)).is_ok());
        let terminate = receiver.segment(&segment(4)).unwrap_err();
        assert_eq!(terminate.code, Code::NO_BUFFER);
        assert_eq!(terminate.bytes()[2..], [&[0xe0, 0, 0, 46], &segment(4)[..]].concat(), "with the request's fields");
    }

    #[test]
    fn nothing_is_handled_after_an_error() {
        let mut receiver = Receiver::new(1);
        assert!(receiver.segment(&untagged(SEND, 5, 0, true, b"")).is_err());
        assert_eq!(receiver.segment(&untagged(SEND, 1, 0, true, b"late")), Ok(Event::Nothing));
        let mut receiver = Receiver::new(1);
        let terminate = untagged(Opcode::Terminate, 1, 0, true, &Terminate::new(Code::ACCESS).bytes());
        assert_eq!(receiver.segment(&terminate), Ok(Event::Terminated(Code::ACCESS)));
        assert_eq!(receiver.segment(&untagged(SEND, 1, 0, true, b"late")), Ok(Event::Nothing));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 1024 }, ..Default::default() })]

        /// Most headers are valid, so that the code that checks the state is reached.
        #[test]
        fn no_input_exceeds_what_was_asked_for(
            segments in proptest::collection::vec(
                (0..12_u8, any::<bool>(), 0..3_u32, 0..12_u32, proptest::collection::vec(any::<u8>(), 0..56)), 1..12),
        ) {
            let mut receiver = Receiver::new(2);
            let asked = 20;
            receiver.expect_read(asked);
            receiver.expect_atomic();
            let (mut reads, mut received) = (0, 0);
            for (opcode, is_last, number, offset, payload) in segments {
                let opcode = Opcode::parse(opcode).unwrap();
                let segment = match opcode.queue() {
                    Some(_) => untagged(opcode, number, offset, is_last, &payload),
                    None => tagged(opcode, number, offset.into(), is_last, &payload),
                };
                match receiver.segment(&segment) {
                    Ok(Event::ReadResponse { offset, payload, .. }) => {
                        prop_assert_eq!(offset, received);
                        received += payload.len() as u32;
                    }
                    Ok(Event::ReadRequest(_) | Event::AtomicRequest(_)) => reads += 1,
                    Ok(_) => {}
                    Err(terminate) => prop_assert!(terminate.bytes().len() <= 6 + 46),
                }
            }
            prop_assert!(received <= asked && reads <= 2);
        }
    }
}
