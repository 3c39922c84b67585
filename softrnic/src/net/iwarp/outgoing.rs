//! The sending side of a connection. It encodes messages into a buffer, which is passed to TCP, and stores the requests
//! that are not complete.

use std::collections::VecDeque;
use std::sync::Weak;
use std::time::Instant;

use super::alignment::Alignment;
use super::code::Code;
use super::rdmap::{Atomic, ReadRequest};
use super::receiver::Last;
use super::stream::Stream;
use super::terminate::Terminate;
use crate::wire::bytes::{self, Fault, Segment};
use crate::wire::message::{Refusal, Reply};
use crate::wire::operation::Operation;
use crate::wire::packet::{Part, Payload, Response, ResponseKind};
use crate::wire::transport::{Stuck, Wake};

/// If the buffer has at least this length, it refuses packets.
pub(super) const BUFFER_LIMIT: usize = 256 << 10;
/// The maximum length of the data of reads that are sent before other connections are served. It ensures that a peer
/// that requests long reads, and takes their data as fast as it is sent, does not delay other connections.
pub(super) const TURN: usize = 1 << 20;
/// The value of the first half of an Immediate Data message if the message belongs to the next Send. If the message
/// belongs to a Write, the first half is the length of this Write. RFC 7306 leaves all eight bytes to the program.
pub(super) const SEND_FOLLOWS: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) stream: Stream,
    /// The encoded bytes. TCP has accepted the first `taken` of them.
    pub(super) buffer: Vec<u8>,
    pub(super) taken: usize,
    /// Where in its frames TCP has stopped.
    pub(super) alignment: Alignment,
    /// Whether requests may wait for responses, so that headers must not be cut.
    pub(super) is_asking: bool,
    /// How many bytes TCP has accepted before the bytes of this buffer.
    pub(super) position: u64,
    /// The memory into which a payload is copied.
    pub(super) scratch: Vec<u8>,
    /// The requests of the QP that are not complete.
    pub(super) requests: VecDeque<Outstanding>,
    /// The requests of the peer to which the QP has not responded.
    pub(super) asked: VecDeque<(u32, Asked)>,
    /// The length of the data of reads that this turn has encoded.
    pub(super) given: usize,
    /// The owner of the message that is only partly encoded, if any.
    pub(super) open: Option<Owner>,
    pub(super) waiter: Option<Weak<dyn Wake>>,
    /// Whether a thread is delivering completions.
    pub(super) is_completing: bool,
    /// Whether TCP accepts no bytes at the moment.
    pub(super) is_blocked: bool,
    /// Since when the connection is cut, if it is.
    pub(super) cut: Option<Instant>,
    pub(super) end: End,
}

/// Which steps were taken to end the connection.
#[derive(Debug, Default)]
pub(super) struct End {
    /// Whether the connection is ending, so that no further message is encoded.
    pub(super) is_ending: bool,
    pub(super) began: Option<Instant>,
    /// The time at which data of the peer has last arrived since the connection began to end.
    pub(super) heard: Option<Instant>,
    /// Whether a Terminate message was encoded.
    pub(super) is_terminated: bool,
    /// The reason for which the peer has ended the connection, if it has sent one.
    pub(super) refusal: Option<Refusal>,
    /// Whether the end was reported to the QP.
    pub(super) is_reported: bool,
    /// Whether this end has closed its direction.
    pub(super) is_shut: bool,
    /// Whether the peer has closed its direction.
    pub(super) is_closed: bool,
    /// Whether TCP can send nothing more.
    pub(super) is_broken: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Requests,
    Responses,
}

/// A request of the QP.
#[derive(Debug)]
pub(super) struct Outstanding {
    pub(super) psn: u32,
    pub(super) attempt: u32,
    pub(super) wait: Await,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Await {
    /// The request waits until TCP has accepted this byte.
    Taken(u64),
    Data,
    Original,
    Nothing {
        original: u64,
    },
}

/// A request of the peer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    Read(ReadRequest),
    Atomic(u32),
}

impl Outgoing {
    /// Creates the sending side. The bytes of `first` are sent before all others. `mss` is the maximum length of a TCP
    /// segment.
    pub(super) fn new(stream: Stream, first: Vec<u8>, mss: u16) -> Self {
        Self {
            stream,
            alignment: Alignment::new(mss, first.len()),
            is_asking: false,
            buffer: first,
            taken: 0,
            position: 0,
            scratch: Vec::new(),
            requests: VecDeque::new(),
            asked: VecDeque::new(),
            given: 0,
            open: None,
            waiter: None,
            is_completing: false,
            is_blocked: false,
            cut: None,
            end: End::default(),
        }
    }

    pub(super) fn pending(&self) -> usize {
        self.buffer.len() - self.taken
    }

    /// Whether there is space for the next packet of this owner.
    pub(super) fn fits(&self, owner: Owner) -> bool {
        self.stream.may_send() && self.pending() < BUFFER_LIMIT && self.open.is_none_or(|open| open == owner)
    }

    /// The bytes that TCP may get at once, and whether it may append no others to them.
    pub(super) fn next_bytes(&mut self) -> (&[u8], bool) {
        let asks = |request: &Outstanding| matches!(request.wait, Await::Data | Await::Original);
        self.is_asking = self.is_asking && self.requests.iter().any(asks);
        let bytes = &self.buffer[self.taken..];
        let length = if self.is_asking { self.alignment.at_once(bytes) } else { bytes.len() };
        (&bytes[..length], self.is_asking)
    }

    /// Records that TCP has accepted bytes.
    pub(super) fn accepted(&mut self, length: usize) {
        self.alignment.sent(&self.buffer[self.taken..], length);
        self.taken += length;
    }

    pub(super) fn terminate(&mut self, code: Code) {
        if !self.end.is_terminated && !self.end.is_shut {
            rdma_mummy_sys::log!(debug, "sent a Terminate message: {code:?}");
            self.stream.terminate(&Terminate::new(code), &mut self.buffer);
            self.end.is_terminated = true;
        }
    }

    /// Returns how many bytes TCP has accepted.
    pub(super) fn sent(&self) -> u64 {
        self.position + self.taken as u64
    }

    /// Whether the oldest request is complete.
    pub(super) fn has_completed(&self) -> bool {
        self.requests.front().is_some_and(|request| match request.wait {
            Await::Taken(end) => self.sent() >= end,
            Await::Nothing { .. } => true,
            Await::Data | Await::Original => false,
        })
    }

    /// Removes and returns the next request that has completed.
    pub(super) fn completed(&mut self) -> Option<(u32, u32, u64)> {
        if !self.has_completed() {
            return None;
        }
        let Outstanding { psn, attempt, wait } = self.requests.pop_front()?;
        let original = if let Await::Nothing { original } = wait { original } else { 0 };
        Some((psn, attempt, original))
    }

    /// Records that TCP sends nothing more. Requests whose bytes it has not accepted do not complete. The peer may
    /// still respond to other requests.
    pub(super) fn stop_sending(&mut self) {
        let sent = self.sent();
        self.requests.retain(|request| !matches!(request.wait, Await::Taken(end) if end > sent));
        self.buffer.clear();
        (self.position, self.taken, self.is_blocked, self.end.is_broken) = (sent, 0, false, true);
    }

    /// Returns the oldest request that waits for this kind of response.
    pub(super) fn oldest(&mut self, wait: Await) -> Option<&mut Outstanding> {
        self.requests.iter_mut().find(|request| request.wait == wait)
    }

    /// Encodes a part of a request of the QP.
    pub(super) fn put_part(&mut self, part: &Part, payload: Payload<'_>) -> Result<(), Stuck> {
        if !self.fits(Owner::Requests) {
            return Err(Stuck::Full);
        }
        let Self { stream, buffer, scratch, .. } = self;
        let payload = copied(payload, scratch)?;
        let request = &part.request;
        let is_last = part.is_last();
        // The conversion is lossless, because a message has at most 2 GiB.
        let offset = part.offset as u32;
        let kind = |invalidate| Last { is_solicited: request.is_solicited, invalidate };
        let immediate = |first: u32, immediate: u32| {
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&first.to_be_bytes());
            bytes[4..].copy_from_slice(&immediate.to_ne_bytes());
            bytes
        };
        let mut wait = None;
        match request.operation {
            Operation::Send => stream.send(kind(None), offset, payload, is_last, buffer),
            Operation::SendInvalidate { rkey } => stream.send(kind(Some(rkey)), offset, payload, is_last, buffer),
            Operation::SendImmediate { immediate: value } => {
                if part.offset == 0 {
                    stream.immediate(immediate(SEND_FOLLOWS, value), false, buffer);
                }
                stream.send(kind(None), offset, payload, is_last, buffer);
            }
            Operation::Write { address, rkey } | Operation::WriteImmediate { address, rkey, .. } => {
                stream.write(rkey, address.wrapping_add(part.offset), payload, is_last, buffer);
                if let (Operation::WriteImmediate { immediate: value, .. }, true) = (request.operation, is_last) {
                    stream.immediate(immediate(request.length as u32, value), request.is_solicited, buffer);
                }
            }
            Operation::Read { address, rkey } => {
                stream.read(request.length as u32, rkey, address, buffer);
                wait = Some(Await::Data);
            }
            Operation::CompareSwap { address, rkey, compare, swap } => {
                stream.atomic(rkey, address, Atomic::CompareSwap { compare, swap }, buffer);
                wait = Some(Await::Original);
            }
            Operation::FetchAdd { address, rkey, add } => {
                stream.atomic(rkey, address, Atomic::FetchAdd { add }, buffer);
                wait = Some(Await::Original);
            }
            // iWARP has no message for these operations.
            Operation::AtomicWrite { .. } | Operation::Flush { .. } => return Err(Stuck::Fault),
            Operation::LocalInvalidate { .. } | Operation::Bind => return Err(Stuck::Fault),
        }
        self.open = (!is_last).then_some(Owner::Requests);
        self.is_asking |= wait.is_some();
        if is_last {
            let wait = wait.unwrap_or(Await::Taken(self.position + self.buffer.len() as u64));
            self.requests.push_back(Outstanding { psn: request.psn, attempt: part.attempt, wait });
        }
        Ok(())
    }

    /// Encodes a response of the QP.
    pub(super) fn put_response(&mut self, response: &Response, payload: Payload<'_>) -> Result<(), Stuck> {
        let asked = self.asked.front().filter(|(psn, _)| *psn == response.psn).map(|(_, asked)| *asked);
        let (offset, length, original) = match response.kind {
            ResponseKind::Data { offset, length } => (offset, length, 0),
            // iWARP has no acknowledgements, and a read ends with the last part of its data.
            ResponseKind::Reply(Reply::Done { original }) => match asked {
                Some(Asked::Atomic(_) | Asked::Read(ReadRequest { length: 0, .. })) => (0, 0, original),
                _ => return Ok(()),
            },
            ResponseKind::Reply(reply) => {
                self.refuse(reply, asked);
                return Ok(());
            }
        };
        if self.end.is_ending || self.end.is_broken {
            return Err(Stuck::Lost);
        }
        if !self.fits(Owner::Responses) || self.given >= TURN {
            return Err(Stuck::Full);
        }
        self.given += length as usize;
        let Self { stream, buffer, scratch, .. } = self;
        let mut is_last = true;
        match asked {
            Some(Asked::Read(read)) => {
                let payload = copied(payload, scratch)?;
                is_last = offset + u64::from(length) >= read.length.into();
                stream.read_response(&read, offset as u32, payload, buffer);
            }
            Some(Asked::Atomic(id)) => stream.atomic_response(id, original, buffer),
            None => return Ok(()),
        }
        self.open = (!is_last).then_some(Owner::Responses);
        if is_last {
            self.asked.pop_front();
        }
        Ok(())
    }

    /// Ends the connection because the QP refuses a message.
    pub(super) fn refuse(&mut self, reply: Reply, asked: Option<Asked>) {
        let code = match reply {
            // The QP has failed or was disconnected, so it handles no messages.
            Reply::Silence if self.end.is_ending => return,
            // If there is no receive, the connection keeps the message and retries.
            Reply::Done { .. } | Reply::NotReady { .. } => return,
            Reply::Refused(refusal) => code_of(refusal, asked.is_some()),
            Reply::Silence | Reply::LocalFault | Reply::BadResponse => Code::UNSPECIFIED,
        };
        self.terminate(code);
        self.end.is_ending = true;
    }
}

/// Returns the code that reports a refusal to the peer.
fn code_of(refusal: Refusal, is_read: bool) -> Code {
    match (refusal, is_read) {
        (Refusal::AccessError(Fault::Invalidation), _) => Code::INVALIDATION,
        (Refusal::AccessError(fault), true) => match fault {
            Fault::Bounds => Code::READ_BOUNDS,
            Fault::Domain => Code::READ_DOMAIN,
            Fault::Rights => Code::ACCESS,
            _ => Code::READ_STAG,
        },
        (Refusal::AccessError(fault), false) => match fault {
            Fault::Bounds => Code::TAGGED_BOUNDS,
            Fault::Domain => Code::TAGGED_DOMAIN,
            // DDP has no code for missing access rights.
            Fault::Rights => Code::ACCESS,
            _ => Code::TAGGED_STAG,
        },
        (Refusal::InvalidRequest, true) => Code::ACCESS,
        (Refusal::InvalidRequest, false) => Code::TOO_LONG,
        (Refusal::OperationError, _) => Code::UNSPECIFIED,
    }
}

/// Converts the peer's code to the status of the oldest request.
pub(super) fn refusal_of(code: Code) -> Refusal {
    match code.0 >> 8 {
        // The kernel's siw sends the layer and the type in the opposite order on most processors.
        0x01 | 0x10 | 0x11 => Refusal::AccessError(Fault::Key),
        0x12 | 0x21 => Refusal::InvalidRequest,
        _ => Refusal::OperationError,
    }
}

/// Returns the bytes of a payload. If other threads may change them, copies them first.
fn copied<'p>(payload: Payload<'p>, scratch: &'p mut Vec<u8>) -> Result<&'p [u8], Stuck> {
    match payload {
        Payload::Bytes(bytes) => Ok(bytes),
        Payload::Memory(segments) => {
            let length = segments.iter().map(Segment::len).sum();
            if scratch.len() < length {
                scratch.resize(length, 0);
            }
            let copy = &mut scratch[..length];
            bytes::read_bytes(segments, copy).map_err(|_| Stuck::Fault)?;
            Ok(copy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_its_code() {
        for (fault, read, write) in [
            (Fault::Key, 0x0100, 0x1100),
            (Fault::Bounds, 0x0101, 0x1101),
            (Fault::Rights, 0x0102, 0x0102),
            (Fault::Domain, 0x0103, 0x1102),
            (Fault::Invalidation, 0x0109, 0x0109),
        ] {
            for (is_read, expected) in [(true, read), (false, write)] {
                let code = code_of(Refusal::AccessError(fault), is_read);
                assert_eq!(code, Code(expected), "{fault:?}");
                assert!(matches!(refusal_of(code), Refusal::AccessError(_)), "{fault:?}");
            }
        }
        assert_eq!([Code(0x1205), Code(0x2102)].map(refusal_of), [Refusal::InvalidRequest; 2]);
    }
}
