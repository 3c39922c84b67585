//! An unreliable connection: packets that are lost are not sent again, and a message of which one is lost is dropped.

use std::collections::VecDeque;

use super::assembly::Assembly;
use super::line::{Emit, Line};
use super::packet::{Body, Packet, Place, Range, SendEnd};
use super::psn::distance;
use crate::wire::message::Request;
use crate::wire::operation::Operation;
use crate::wire::packet::{MAX_NUMBER, Part, psn_after};
use crate::wire::transport::Stuck;

/// The maximum number of bytes that wait for space in the socket.
const BUFFER_LIMIT: usize = 256 << 10;
/// A packet that is late by less than this is a repeated one. If it is later, the peer has begun anew.
const LATE: i32 = 1024;

#[derive(Debug)]
pub(super) struct Unreliable {
    line: Line,
    assembly: Assembly,
    /// The PSN of the next packet of the peer.
    expected: u32,
    out: VecDeque<Out>,
    buffered: usize,
}

/// A part that waits for space in the socket.
#[derive(Debug)]
struct Out {
    part: Part,
    bytes: Vec<u8>,
    /// The number of bytes that were sent.
    sent: usize,
}

impl Unreliable {
    pub(super) fn new(line: Line, psn: u32, number: u32, template: Request) -> Self {
        Self {
            line,
            assembly: Assembly::new(line.mtu, number, template),
            expected: psn & MAX_NUMBER,
            out: VecDeque::new(),
            buffered: 0,
        }
    }

    /// Returns the part that a packet of the peer is, if it follows the packets before it.
    pub(super) fn arrived(&mut self, packet: &Packet, length: usize) -> Option<Part> {
        let late = distance(packet.psn, self.expected);
        if late != 0 {
            if (1..LATE).contains(&late) {
                return None;
            }
            self.assembly.set_current(None);
        }
        self.expected = psn_after(packet.psn, 1);
        let part = self.assembly.part(packet, length);
        match part {
            Ok(part) => {
                self.assembly.accepted(&part);
                Some(part)
            }
            Err(_) => {
                self.assembly.set_current(None);
                None
            }
        }
    }

    /// Whether a part of the QP has space.
    pub(super) fn has_space(&self) -> bool {
        self.buffered < BUFFER_LIMIT
    }

    /// Adds a part of a message. `read` copies its payload.
    pub(super) fn add(
        &mut self,
        part: &Part,
        read: impl FnOnce(&mut Vec<u8>) -> Result<(), Stuck>,
    ) -> Result<(), Stuck> {
        if !self.has_space() {
            return Err(Stuck::Full);
        }
        let mut bytes = Vec::new();
        read(&mut bytes)?;
        self.buffered += bytes.len();
        self.out.push_back(Out { part: *part, bytes, sent: 0 });
        Ok(())
    }

    /// Sends what waits.
    pub(super) fn send(&mut self, emit: &mut Emit<'_>) {
        let mtu = self.line.mtu as usize;
        while let Some(Out { part, bytes, sent }) = self.out.front_mut() {
            loop {
                let payload = &bytes[*sent..bytes.len().min(*sent + mtu)];
                let at = part.offset + *sent as u64;
                let is_last = at + payload.len() as u64 >= part.request.length;
                let place = Place::new(at == 0, is_last);
                let Some(body) = body(part, place) else { break };
                let psn = psn_after(part.request.psn, (at / mtu as u64) as u32);
                let is_solicited = part.request.is_solicited && is_last;
                if !emit(&Packet { is_solicited, ..self.line.packet(body, 0, psn) }, payload) {
                    return;
                }
                *sent += payload.len();
                self.buffered -= payload.len();
                if *sent >= bytes.len() {
                    break;
                }
            }
            self.out.pop_front();
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.out.is_empty()
    }
}

fn body(part: &Part, place: Place) -> Option<Body> {
    // The conversion is lossless, because a message has at most 2 GiB.
    let range = |address, rkey| place.is_first().then_some(Range { address, rkey, length: part.request.length as u32 });
    let body = match part.request.operation {
        Operation::Send => Body::Send { place, end: SendEnd::Nothing },
        Operation::SendImmediate { immediate } if place.is_last() => {
            Body::Send { place, end: SendEnd::Immediate(immediate) }
        }
        Operation::SendImmediate { .. } => Body::Send { place, end: SendEnd::Nothing },
        Operation::Write { address, rkey } => Body::Write { place, range: range(address, rkey), immediate: None },
        Operation::WriteImmediate { address, rkey, immediate } => {
            let immediate = place.is_last().then_some(immediate);
            Body::Write { place, range: range(address, rkey), immediate }
        }
        _ => return None,
    };
    Some(body)
}
