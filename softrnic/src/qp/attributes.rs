//! The objects from which a QP is created, and the attributes of a QP.

use std::fmt::Debug;
use std::sync::Arc;

use crate::cq::CompletionQueue;
use crate::mem::domain::Domain;
use crate::srq::ReceiveQueue;
use crate::wire::address::Path;
use crate::wire::condition::Condition;
use crate::wire::operation::Service;
use crate::wire::transport::Carrier;

/// The states of `enum ibv_qp_state`.
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
    /// Converts the result of `state as u8` back to the state.
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

    /// Whether a QP in this state handles incoming messages. In the send queue's error state it still does.
    pub(super) fn receives(self) -> bool {
        matches!(self, Self::ReadyToReceive | Self::ReadyToSend | Self::SendQueueDrain | Self::SendQueueError)
    }
}

/// The attributes that `ibv_modify_qp` has set so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    pub(crate) path: Option<Path>,
    /// The path MTU in bytes.
    pub(crate) path_mtu: u32,
    pub(crate) destination_number: u32,
    /// The PSN of the next expected packet.
    pub(crate) rq_psn: u32,
    /// The PSN of the next packet to send.
    pub(crate) sq_psn: u32,
    pub(crate) access: u32,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    /// The Q_Key of a datagram QP (`qkey`).
    pub(crate) key: u32,
    pub(crate) pkey_index: u16,
    pub(crate) port: u8,
    pub(crate) drain_notify: bool,
}

impl Attributes {
    /// The attributes of a QP in RESET.
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

/// How the messages of a QP leave its device.
#[derive(Clone, Debug)]
pub(crate) enum Reach {
    /// The registry finds the peer, or the carrier to its process, by the number of the peer.
    Registry,
    /// The QP has a connection of its own.
    Connection,
    /// One carrier reaches all peers.
    Carrier(Arc<dyn Carrier>),
}

/// The objects from which a QP is created.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) service: Service,
    pub(crate) reach: Reach,
    pub(crate) domain: Arc<Domain>,
    /// `None` for an XRC target.
    pub(crate) send_queue: Option<Arc<CompletionQueue>>,
    /// `None` for an XRC initiator.
    pub(crate) receive_queue: Option<Arc<CompletionQueue>>,
    pub(crate) receives: Arc<ReceiveQueue>,
    /// Whether `receives` is a shared receive queue.
    pub(crate) is_shared: bool,
    /// The XRC domain of an XRC target.
    pub(crate) xrc_domain: Option<Arc<Domain>>,
    pub(crate) max_send_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_inline: u32,
    /// The length of the longest message that the QP sends.
    pub(crate) max_message: u32,
    pub(crate) signals_all: bool,
    pub(crate) events: Box<dyn PairEvents>,
    /// The condition of the device.
    pub(crate) condition: &'static Condition,
}

/// Asynchronous events of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PairEvent {
    /// `IBV_EVENT_QP_FATAL`: the completion queue lost a completion of this QP.
    Fatal,
    /// `IBV_EVENT_QP_REQ_ERR`: the peer sent an invalid request.
    RequestError,
    /// `IBV_EVENT_QP_ACCESS_ERR`: the peer's request violated access rights.
    AccessError,
    /// `IBV_EVENT_COMM_EST`: data arrived before the program moved the QP to RTS.
    Established,
    /// `IBV_EVENT_SQ_DRAINED`: the requests in flight have completed, and the send queue begins no further requests.
    SendQueueDrained,
    /// `IBV_EVENT_QP_LAST_WQE_REACHED`: a QP with an SRQ is in the error state.
    LastReceiveReached,
}

/// Receives the events; the C API implements this trait. The caller holds locks of the device, so implementations
/// neither block nor call back.
pub(crate) trait PairEvents: Debug + Send + Sync {
    fn happened(&self, event: PairEvent);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_restored_from_its_byte() {
        for byte in 0..=6 {
            assert_eq!(State::from_u8(byte) as u8, byte);
        }
        assert_eq!(State::from_u8(7), State::Error);
    }
}
