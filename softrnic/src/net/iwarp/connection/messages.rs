//! The messages of a connection, in the order in which the peer sent them: segments become parts for the QP.

use std::collections::VecDeque;

use crate::net::iwarp::outgoing::{Asked, SEND_FOLLOWS};
use crate::net::iwarp::rdmap::Atomic;
use crate::net::iwarp::receiver::{Event, Last};
use crate::wire::message::{Request, UNKNOWN_LENGTH};
use crate::wire::operation::Operation;
use crate::wire::packet::psn_after;

/// The state of the messages that are being received.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// The PSN with which the next message is delivered.
    psn: u32,
    /// The immediate data that belongs to the next Send, if any.
    immediate: Option<u32>,
    /// The STag, the first offset and the length of the current Write. If no Write is being received, they are those of
    /// the last one.
    write: (u32, u64, u64),
    is_in_write: bool,
}

impl Messages {
    /// Returns the request, the offset and the payload of the part that a segment is. Records in `asked` what the peer
    /// reads. Returns `None` if the segment is no part of its own.
    pub(super) fn part<'s>(
        &mut self,
        event: Event<'s>,
        template: Request,
        asked: &mut VecDeque<(u32, Asked)>,
    ) -> Option<(Request, u64, &'s [u8])> {
        let mut request = Request { psn: self.psn, ..template };
        let (offset, payload) = match event {
            Event::Send { offset, payload, last } => {
                if payload.is_empty() && last.is_none() {
                    return None;
                }
                (request.operation, request.length) = (Operation::Send, UNKNOWN_LENGTH);
                if let Some(Last { is_solicited, invalidate }) = last {
                    request.length = u64::from(offset) + payload.len() as u64;
                    request.is_solicited = is_solicited;
                    request.operation = match (invalidate, self.immediate.take()) {
                        (Some(rkey), _) => Operation::SendInvalidate { rkey },
                        (None, Some(immediate)) => Operation::SendImmediate { immediate },
                        (None, None) => Operation::Send,
                    };
                }
                (u64::from(offset), payload)
            }
            Event::Write { stag, offset, payload, is_last } => {
                if !self.is_in_write {
                    self.write = (stag, offset, 0);
                }
                self.is_in_write = !is_last;
                self.write.2 += payload.len() as u64;
                request.operation = Operation::Write { address: offset, rkey: stag };
                request.length = payload.len() as u64;
                (0, payload)
            }
            Event::Immediate { bytes: [a, b, c, d, value @ ..], is_solicited } => {
                let (first, value) = (u32::from_be_bytes([a, b, c, d]), u32::from_ne_bytes(value));
                if first == SEND_FOLLOWS {
                    self.immediate = Some(value);
                    return None;
                }
                let (rkey, address, length) = self.write;
                let (rkey, address, length) =
                    if u64::from(first) == length { (rkey, address, length) } else { (0, 0, 0) };
                request.operation = Operation::WriteImmediate { address, rkey, immediate: value };
                (request.length, request.is_solicited) = (length, is_solicited);
                (length, &[][..])
            }
            Event::ReadRequest(read) => {
                asked.push_back((request.psn, Asked::Read(read)));
                request.operation = Operation::Read { address: read.source_offset, rkey: read.source_stag };
                request.length = read.length.into();
                (0, &[][..])
            }
            Event::AtomicRequest(atomic) => {
                asked.push_back((request.psn, Asked::Atomic(atomic.id)));
                let (address, rkey) = (atomic.offset, atomic.stag);
                request.operation = match atomic.kind {
                    Atomic::FetchAdd { add } => Operation::FetchAdd { address, rkey, add },
                    Atomic::CompareSwap { compare, swap } => Operation::CompareSwap { address, rkey, compare, swap },
                };
                request.length = 8;
                (0, &[][..])
            }
            Event::ReadResponse { .. } | Event::AtomicResponse { .. } | Event::Terminated(_) | Event::Nothing => {
                return None;
            }
        };
        Some((request, offset, payload))
    }

    /// The last part of a message was delivered.
    pub(super) fn end(&mut self) {
        self.psn = psn_after(self.psn, 1);
    }
}
