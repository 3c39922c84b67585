//! The reply to the request of a connection.

use super::body::{Body, bits};
use super::{Ece, Ids};
use crate::net::roce::mad::At;

/// The reply that accepts a connection (REP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rep {
    pub(crate) ids: Ids,
    pub(crate) ece: Ece,
    pub(crate) qkey: u32,
    pub(crate) qp_number: u32,
    /// The PSN with which the receiver of this message starts to send.
    pub(crate) starting_psn: u32,
    /// The number of reads and atomic operations that the sender can serve at a time.
    pub(crate) responder_resources: u8,
    /// The number of reads and atomic operations that the sender has in flight.
    pub(crate) initiator_depth: u8,
    /// The maximum time from a packet to its acknowledgement, as an exponent: 4.096 μs × 2ⁿ.
    pub(crate) ack_delay: u8,
    /// The code that states whether the alternate path is accepted.
    pub(crate) failover: u8,
    pub(crate) has_flow_control: bool,
    pub(crate) rnr_retry_count: u8,
    pub(crate) has_srq: bool,
    /// The GUID of the sender's device.
    pub(crate) guid: u64,
    pub(crate) private: [u8; Self::PRIVATE],
}

impl Rep {
    /// The length of the private data.
    pub(crate) const PRIVATE: usize = 196;

    pub(super) fn read(body: &Body, options: u32) -> Self {
        // The bytes of the vendor are in gaps between other fields.
        let vendor = u32::from_be_bytes([0, body.byte::<15>(), body.byte::<19>(), body.byte::<23>()]);
        let (flags, counts) = (body.byte::<26>(), body.byte::<27>());
        Self {
            ids: Ids::read(body),
            ece: Ece { vendor, options },
            qkey: body.word::<8>(),
            qp_number: body.word24::<12>(),
            starting_psn: body.word24::<20>(),
            responder_resources: body.byte::<24>(),
            initiator_depth: body.byte::<25>(),
            ack_delay: bits(flags, 3, 0x1f),
            failover: bits(flags, 1, 3),
            has_flow_control: bits(flags, 0, 1) != 0,
            rnr_retry_count: bits(counts, 5, 7),
            has_srq: bits(counts, 4, 1) != 0,
            guid: body.long::<28>(),
            private: body.get(At::<36>),
        }
    }

    pub(super) fn body(&self) -> Body {
        let mut body = self.ids.body();
        let [_, high, middle, low] = self.ece.vendor.to_be_bytes();
        body.put_word::<8>(self.qkey);
        body.put_word24::<12>(self.qp_number);
        body.put(At::<15>, [high]);
        body.put(At::<19>, [middle]);
        body.put_word24::<20>(self.starting_psn);
        body.put(At::<23>, [low, self.responder_resources, self.initiator_depth]);
        let flags = self.ack_delay << 3 | (self.failover & 3) << 1 | u8::from(self.has_flow_control);
        body.put(At::<26>, [flags, self.rnr_retry_count << 5 | u8::from(self.has_srq) << 4]);
        body.put_long::<28>(self.guid);
        body.put(At::<36>, self.private);
        body
    }
}
