//! What the engine tells the world. The C front implements these; they are called with the locks of the engine held, and so
//! neither block nor call back into it.

use std::fmt::Debug;

/// Told by a completion queue.
pub(crate) trait CompletionEvents: Debug + Send + Sync {
    /// A completion has come that was asked for (`ibv_req_notify_cq`).
    fn completed(&self);
    /// One was lost for want of room (`IBV_EVENT_CQ_ERR`).
    fn overrun(&self);
}

/// What is told asynchronously of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PairEvent {
    /// `IBV_EVENT_QP_FATAL`: its completion queue has lost a completion of it.
    Fatal,
    /// `IBV_EVENT_QP_REQ_ERR`: an invalid request came from the peer.
    RequestError,
    /// `IBV_EVENT_QP_ACCESS_ERR`: the peer's request violated access rights.
    AccessError,
    /// `IBV_EVENT_COMM_EST`: data came before the queue pair was moved to RTS.
    Established,
    /// `IBV_EVENT_SQ_DRAINED`
    SendQueueDrained,
    /// `IBV_EVENT_QP_LAST_WQE_REACHED`: of a queue pair with an SRQ, once it is in the error state.
    LastReceiveReached,
}

/// Told by a queue pair.
pub(crate) trait PairEvents: Debug + Send + Sync {
    fn happened(&self, event: PairEvent);
}

/// Told by a shared receive queue.
pub(crate) trait ReceiveEvents: Debug + Send + Sync {
    /// Fewer receives are left than the limit that was set (`IBV_EVENT_SRQ_LIMIT_REACHED`); the limit is gone.
    fn limit_reached(&self);
}
