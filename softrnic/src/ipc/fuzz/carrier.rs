//! A carrier to the peer, which records what this side sends.

use std::sync::{Mutex, Weak};

use crate::sys::unpoisoned;
use crate::wire::bytes::{Segment, read_bytes};
use crate::wire::message::Reply;
use crate::wire::packet::{Packet, Part, Payload, Response, ResponseKind};
use crate::wire::transport::{Carrier, Stuck, Wake};

/// A carrier to the peer, which has limited space and records the packets.
#[derive(Debug, Default)]
pub(super) struct RecordingCarrier(Mutex<Sent>);

#[derive(Debug, Default)]
struct Sent {
    parts: Vec<Part>,
    responses: Vec<Response>,
    /// The payload of the packets that were sent.
    payload: Vec<u8>,
    space: usize,
    waiting: Vec<Weak<dyn Wake>>,
}

impl Carrier for RecordingCarrier {
    fn put(&self, packet: &Packet, payload: Payload<'_>) -> Result<(), Stuck> {
        let mut sent = unpoisoned(self.0.lock());
        if sent.space == 0 {
            return Err(Stuck::Full);
        }
        let mut bytes = vec![0; packet.length() as usize];
        match payload {
            Payload::Bytes(from) => bytes.copy_from_slice(from),
            Payload::Memory(from) => {
                assert_eq!(from.iter().map(Segment::len).sum::<usize>(), bytes.len());
                read_bytes(from, &mut bytes).map_err(|_| Stuck::Fault)?;
            }
        }
        sent.space -= 1;
        sent.payload.extend(bytes);
        match *packet {
            Packet::Part(part) => sent.parts.push(part),
            Packet::Response(response) => sent.responses.push(response),
        }
        Ok(())
    }

    fn wake(&self, pair: Weak<dyn Wake>) {
        unpoisoned(self.0.lock()).waiting.push(pair);
    }

    fn taken(&self) -> u64 {
        0
    }
}

impl RecordingCarrier {
    pub(super) fn set_space(&self, packets: usize) {
        let waiting = {
            let mut sent = unpoisoned(self.0.lock());
            sent.space = packets;
            std::mem::take(&mut sent.waiting)
        };
        waiting.iter().filter_map(Weak::upgrade).for_each(|pair| pair.wake());
    }

    /// Returns the PSN and the attempt of a part that was sent.
    pub(super) fn sent(&self, index: usize) -> Option<(u32, u32)> {
        unpoisoned(self.0.lock()).parts.get(index).map(|part| (part.request.psn, part.attempt))
    }

    /// Whether any request of the peer has completed successfully.
    pub(super) fn has_completed(&self) -> bool {
        let is_done = |response: &Response| matches!(response.kind, ResponseKind::Reply(Reply::Done { .. }));
        unpoisoned(self.0.lock()).responses.iter().any(is_done)
    }

    /// Returns the payload that was sent to the peer, and clears it.
    pub(super) fn payload(&self) -> Vec<u8> {
        std::mem::take(&mut unpoisoned(self.0.lock()).payload)
    }
}
