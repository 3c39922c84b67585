//! What a queue pair is made of, and what is set later.

use std::fmt::Debug;
use std::sync::Arc;

use crate::cq::CompletionQueue;
use crate::mem::domain::Domain;
use crate::srq::ReceiveQueue;
use crate::wire::address::Path;
use crate::wire::operation::Service;

/// As `enum ibv_qp_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    Reset,
    Init,
    ReadyToReceive,
    ReadyToSend,
    SendQueueDrain,
    SendQueueError,
    Error,
}

impl State {
    /// From `self as u8`.
    pub(super) fn from_u8(state: u8) -> Self {
        const ALL: [State; 7] = [
            State::Reset,
            State::Init,
            State::ReadyToReceive,
            State::ReadyToSend,
            State::SendQueueDrain,
            State::SendQueueError,
            State::Error,
        ];
        ALL.get(usize::from(state)).copied().unwrap_or(Self::Error)
    }

    /// Messages that come are handled. In the send queue's error state the receiving side works on.
    pub(super) fn receives(self) -> bool {
        matches!(self, Self::ReadyToReceive | Self::ReadyToSend | Self::SendQueueDrain | Self::SendQueueError)
    }
}

/// What `ibv_modify_qp` sets, valid as far as the state goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    pub(crate) path: Option<Path>,
    /// In bytes.
    pub(crate) path_mtu: u32,
    pub(crate) destination_number: u32,
    /// Of the next packet that is expected.
    pub(crate) rq_psn: u32,
    /// Of the next packet that is sent.
    pub(crate) sq_psn: u32,
    pub(crate) access: u32,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    /// Of datagrams (`qkey`).
    pub(crate) key: u32,
    pub(crate) pkey_index: u16,
    pub(crate) port: u8,
    pub(crate) drain_notify: bool,
}

impl Attributes {
    /// Of a queue pair in RESET.
    pub(crate) const fn new() -> Self {
        Self {
            path: None,
            path_mtu: crate::wire::limits::MTU,
            destination_number: 0,
            rq_psn: 0,
            sq_psn: 0,
            access: 0,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
            timeout: 0,
            retry_count: 0,
            rnr_retry: 0,
            key: 0,
            pkey_index: 0,
            port: 1,
            drain_notify: false,
        }
    }
}

/// What a queue pair is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) service: Service,
    pub(crate) domain: Arc<Domain>,
    /// None of the target of XRC.
    pub(crate) send_queue: Option<Arc<CompletionQueue>>,
    /// None of the initiator of XRC.
    pub(crate) receive_queue: Option<Arc<CompletionQueue>>,
    pub(crate) receives: Arc<ReceiveQueue>,
    /// `receives` is a shared one.
    pub(crate) is_shared: bool,
    /// The XRC domain of a target.
    pub(crate) xrc_domain: Option<Arc<Domain>>,
    pub(crate) max_send_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_inline: u32,
    pub(crate) signals_all: bool,
    pub(crate) events: Box<dyn PairEvents>,
}

/// Asynchronous events of a queue pair.
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

/// Takes them: the C API. It is called with locks of the NIC held, and so neither blocks nor calls back.
pub(crate) trait PairEvents: Debug + Send + Sync {
    fn happened(&self, event: PairEvent);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_come_back_from_their_bytes() {
        for byte in 0..=6 {
            assert_eq!(State::from_u8(byte) as u8, byte);
        }
        assert_eq!(State::from_u8(7), State::Error);
    }
}
