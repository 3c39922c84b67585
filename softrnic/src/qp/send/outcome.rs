//! The result of an attempt to execute a request.

use rdma_mummy_sys::ibv_wc_status;

use crate::wire::message::Refusal;

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::qp) enum Outcome {
    /// The request has completed. For reads and atomics, this variant contains the number of received bytes.
    Done {
        length: u32,
    },
    Failed(ibv_wc_status),
    NotReady {
        timer: u8,
    },
    Silence,
    /// All parts of the request were sent to another process, or the request has changed keys and completes after the
    /// requests in flight.
    Sent,
    /// The request or a part of it could not be sent because the carrier is full.
    Stuck,
    /// The request has reached the closed gate.
    Gated,
    /// The request must wait until the responses to earlier requests have arrived.
    Later,
}

/// Returns the completion status of a request that the peer has refused.
pub(in crate::qp) fn status_of(refusal: Refusal) -> ibv_wc_status {
    match refusal {
        Refusal::InvalidRequest => ibv_wc_status::IBV_WC_REM_INV_REQ_ERR,
        Refusal::AccessError(_) => ibv_wc_status::IBV_WC_REM_ACCESS_ERR,
        Refusal::OperationError => ibv_wc_status::IBV_WC_REM_OP_ERR,
    }
}
