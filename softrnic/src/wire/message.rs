//! Messages between requester and responder. A message is handled as a whole, and takes as many packet sequence numbers
//! as on a wire.

use crate::wire::address::Gid;
use crate::wire::bytes::Fault;
use crate::wire::operation::{Operation, Service};

/// The length in all parts of a message but the last, if the protocol does not announce the length.
pub(crate) const UNKNOWN_LENGTH: u64 = u64::MAX;

/// A message as a responder receives it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The service of the requester's QP.
    pub(crate) service: Service,
    pub(crate) operation: Operation,
    /// The bytes to send, write or read. [`UNKNOWN_LENGTH`] in a part of an iWARP message that is not the last one.
    pub(crate) length: u64,
    pub(crate) is_solicited: bool,
    /// The PSN of its first packet.
    pub(crate) psn: u32,
    /// The number of packets at the path MTU.
    pub(crate) packets: u32,
    /// The requester's QP number.
    pub(crate) source_number: u32,
    pub(crate) source: Gid,
    pub(crate) destination: Gid,
    /// The Q_Key of a datagram.
    pub(crate) key: u32,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    pub(crate) flow_label: u32,
    pub(crate) service_level: u8,
    /// The SRQ number of an XRC message.
    pub(crate) srq_number: u32,
}

/// The responder's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Completed; for an atomic, with the previous value.
    Done { original: u64 },
    /// No receive is posted (RNR NAK): retry after the time of this code (`min_rnr_timer`).
    NotReady { timer: u8 },
    /// A permanent error (NAK).
    Refused(Refusal),
    /// No response: the QP does not exist, is in another state or is connected to another peer.
    Silence,
    /// The requester's own memory failed while the data was moved.
    LocalFault,
}

/// The negative acknowledgements of the InfiniBand specification (volume 1, section 9.7.5.2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// NAK invalid request: `IBV_WC_REM_INV_REQ_ERR` at the requester.
    InvalidRequest,
    /// NAK remote access error: `IBV_WC_REM_ACCESS_ERR`. InfiniBand does not report the fault, iWARP does.
    AccessError(Fault),
    /// NAK remote operational error: `IBV_WC_REM_OP_ERR`.
    OperationError,
}
