//! The request of a connection.

use super::Ece;
use super::body::{Body, bits};
use crate::net::roce::mad::At;
use crate::wire::address::Gid;

/// The request of a connection (REQ).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Req {
    pub(crate) local_id: u32,
    pub(crate) ece: Ece,
    pub(crate) service: u64,
    /// The GUID of the sender's device.
    pub(crate) guid: u64,
    pub(crate) qkey: u32,
    pub(crate) qp_number: u32,
    /// The number of reads and atomic operations that the sender can serve at a time.
    pub(crate) responder_resources: u8,
    /// The number of reads and atomic operations that the sender has in flight.
    pub(crate) initiator_depth: u8,
    /// The time in which the receiver responds, as an exponent: 4.096 μs × 2ⁿ.
    pub(crate) remote_response_timeout: u8,
    /// The time in which the sender responds.
    pub(crate) local_response_timeout: u8,
    pub(crate) service_type: TransportService,
    pub(crate) has_flow_control: bool,
    /// The PSN with which the receiver of this message starts to send.
    pub(crate) starting_psn: u32,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) partition: u16,
    /// The code of the path MTU: 128 bytes × 2ⁿ.
    pub(crate) mtu: u8,
    pub(crate) max_cm_retries: u8,
    pub(crate) has_srq: bool,
    pub(crate) path: PrimaryPath,
    pub(crate) private: [u8; Self::PRIVATE],
}

/// The transport service of the QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransportService {
    Reliable,
    Unreliable,
    ReliableDatagram,
    /// An extended transport type, which is 1 for XRC.
    Extended(u8),
}

/// The primary path of a connection. `local` is the end of the sender of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrimaryPath {
    pub(crate) local: Gid,
    pub(crate) remote: Gid,
    pub(crate) flow_label: u32,
    pub(crate) packet_rate: u8,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    pub(crate) service_level: u8,
    pub(crate) is_subnet_local: bool,
    pub(crate) ack_timeout: u8,
}

/// The LID of both ends on networks without LIDs.
const PERMISSIVE_LID: [u8; 2] = [0xff; 2];

impl Req {
    /// The length of the private data.
    pub(crate) const PRIVATE: usize = 92;

    pub(super) fn read(body: &Body, options: u32) -> Self {
        let (times, counts, last) = (body.byte::<43>(), body.byte::<47>(), body.byte::<51>());
        Self {
            local_id: body.word::<0>(),
            ece: Ece { vendor: body.word24::<5>(), options },
            service: body.long::<8>(),
            guid: body.long::<16>(),
            qkey: body.word::<28>(),
            qp_number: body.word24::<32>(),
            responder_resources: body.byte::<35>(),
            initiator_depth: body.byte::<39>(),
            remote_response_timeout: bits(times, 3, 0x1f),
            local_response_timeout: bits(counts, 3, 0x1f),
            service_type: TransportService::new(bits(times, 1, 3), bits(last, 0, 7)),
            has_flow_control: bits(times, 0, 1) != 0,
            starting_psn: body.word24::<44>(),
            retry_count: bits(counts, 0, 7),
            rnr_retry_count: bits(body.byte::<50>(), 0, 7),
            partition: u16::from_be_bytes(body.get(At::<48>)),
            mtu: bits(body.byte::<50>(), 4, 0xf),
            max_cm_retries: bits(last, 4, 0xf),
            has_srq: bits(last, 3, 1) != 0,
            path: PrimaryPath::read(body),
            private: body.get(At::<140>),
        }
    }

    pub(super) fn body(&self) -> Body {
        let (service, extended) = self.service_type.codes();
        let times = self.remote_response_timeout << 3 | service << 1 | u8::from(self.has_flow_control);
        let mut body = Body::ZERO;
        body.put_word::<0>(self.local_id);
        body.put_word24::<5>(self.ece.vendor);
        body.put_long::<8>(self.service);
        body.put_long::<16>(self.guid);
        body.put_word::<28>(self.qkey);
        body.put_word24::<32>(self.qp_number);
        body.put(At::<35>, [self.responder_resources]);
        body.put(At::<39>, [self.initiator_depth]);
        body.put(At::<43>, [times]);
        body.put_word24::<44>(self.starting_psn);
        body.put(At::<47>, [self.local_response_timeout << 3 | self.retry_count & 7]);
        body.put(At::<48>, self.partition.to_be_bytes());
        body.put(At::<50>, [self.mtu << 4 | self.rnr_retry_count & 7]);
        body.put(At::<51>, [self.max_cm_retries << 4 | u8::from(self.has_srq) << 3 | extended]);
        self.path.put(&mut body);
        body.put(At::<140>, self.private);
        body
    }
}

impl TransportService {
    fn new(code: u8, extended: u8) -> Self {
        match code {
            0 => Self::Reliable,
            1 => Self::Unreliable,
            2 => Self::ReliableDatagram,
            _ => Self::Extended(extended),
        }
    }

    fn codes(self) -> (u8, u8) {
        match self {
            Self::Reliable => (0, 0),
            Self::Unreliable => (1, 0),
            Self::ReliableDatagram => (2, 0),
            Self::Extended(extended) => (3, extended & 7),
        }
    }
}

impl PrimaryPath {
    fn read(body: &Body) -> Self {
        Self {
            local: Gid(body.get(At::<56>)),
            remote: Gid(body.get(At::<72>)),
            flow_label: body.word24::<88>() >> 4,
            packet_rate: bits(body.byte::<91>(), 0, 0x3f),
            traffic_class: body.byte::<92>(),
            hop_limit: body.byte::<93>(),
            service_level: bits(body.byte::<94>(), 4, 0xf),
            is_subnet_local: bits(body.byte::<94>(), 3, 1) != 0,
            ack_timeout: bits(body.byte::<95>(), 3, 0x1f),
        }
    }

    fn put(&self, body: &mut Body) {
        body.put(At::<52>, PERMISSIVE_LID);
        body.put(At::<54>, PERMISSIVE_LID);
        body.put(At::<56>, self.local.0);
        body.put(At::<72>, self.remote.0);
        body.put_word24::<88>(self.flow_label << 4);
        body.put(At::<91>, [self.packet_rate & 0x3f]);
        body.put(At::<92>, [self.traffic_class]);
        body.put(At::<93>, [self.hop_limit]);
        body.put(At::<94>, [self.service_level << 4 | u8::from(self.is_subnet_local) << 3]);
        body.put(At::<95>, [self.ack_timeout << 3]);
    }
}
