//! What goes from a requester to a responder and back: whole messages, with the packet numbers that they would take on a wire.

use crate::wire::address::Gid;
use crate::wire::operation::{Operation, Service};

/// A message as it comes to a responder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Of the queue pair that it comes from.
    pub(crate) service: Service,
    pub(crate) operation: Operation,
    /// Its data: what is sent or written, or how much is to be read.
    pub(crate) length: u64,
    pub(crate) is_solicited: bool,
    /// Of its first packet.
    pub(crate) psn: u32,
    /// How many packets it takes at the path MTU.
    pub(crate) packets: u32,
    /// The queue pair that it comes from.
    pub(crate) source_number: u32,
    pub(crate) source: Gid,
    pub(crate) destination: Gid,
    /// Of datagrams.
    pub(crate) key: u32,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    pub(crate) flow_label: u32,
    pub(crate) service_level: u8,
    /// Of XRC.
    pub(crate) srq_number: u32,
}

/// How a responder answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Done; of an atomic, with the value that was there.
    Done { original: u64 },
    /// No receive is posted: try again after the time of this code (`min_rnr_timer`).
    NotReady { timer: u8 },
    /// It is refused, for good.
    Refused(Refusal),
    /// Nobody answers: no such queue pair, or not in a state or not for this peer.
    Silence,
    /// The requester's own memory failed while the data was moved.
    LocalFault,
}

/// The negative acknowledgements of the InfiniBand specification (volume 1, section 9.7.5.2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// NAK invalid request: `IBV_WC_REM_INV_REQ_ERR` at the requester.
    InvalidRequest,
    /// NAK remote access error: `IBV_WC_REM_ACCESS_ERR`.
    AccessError,
    /// NAK remote operational error: `IBV_WC_REM_OP_ERR`.
    OperationError,
}
