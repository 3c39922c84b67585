//! Messages between requester and responder. A message is handled as a whole, but takes as many packet sequence numbers
//! as it would on a network.

use crate::wire::address::Gid;
use crate::wire::bytes::Fault;
use crate::wire::operation::{Operation, Service};

/// The value of the length in all parts of a message except the last one, if the protocol does not announce the length.
pub(crate) const UNKNOWN_LENGTH: u64 = u64::MAX;

/// A message as a responder receives it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The service of the requester's QP.
    pub(crate) service: Service,
    pub(crate) operation: Operation,
    /// The number of bytes that are sent, written or read. In a part of an iWARP message that is not the last one, it
    /// is [`UNKNOWN_LENGTH`].
    pub(crate) length: u64,
    pub(crate) is_solicited: bool,
    /// The PSN of the first packet of the message.
    pub(crate) psn: u32,
    /// The number of packets that the message has at the path MTU.
    pub(crate) packets: u32,
    /// The QP number of the requester.
    pub(crate) source_number: u32,
    pub(crate) source: Gid,
    pub(crate) destination: Gid,
    /// The Q_Key, if the message is a datagram.
    pub(crate) key: u32,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    pub(crate) flow_label: u32,
    pub(crate) service_level: u8,
    /// The number of the shared receive queue, if the service is XRC.
    pub(crate) srq_number: u32,
}

/// The reply of the responder to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The message has completed. If it is an atomic, `original` is the previous value.
    Done { original: u64 },
    /// No receive is posted (RNR NAK). The requester must retry after the time that this code stands for
    /// (`min_rnr_timer`).
    NotReady { timer: u8 },
    /// The message has failed permanently (NAK).
    Refused(Refusal),
    /// There is no response, because the QP does not exist, is in another state or is connected to another peer.
    Silence,
    /// The requester's own memory failed while the data was copied.
    LocalFault,
    /// The response of the peer does not fit the request. The requester's side makes this reply.
    BadResponse,
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
