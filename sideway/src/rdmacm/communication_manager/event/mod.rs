//! `struct rdma_cm_event`: what happened to an identifier.

mod info;
mod kind;
mod raw;

use std::fmt;
use std::sync::Arc;

pub use info::{ConnectionInfo, MulticastFailure, MulticastMembership, Rejection, RemoteDatagram, Unreachable};
pub use kind::EventKind;
pub(super) use raw::RawEvent;

use super::{EventChannel, EventStatus, EventType, Identifier};

/// `struct rdma_cm_event` — what happened to an identifier, with all that C points to.
///
/// It is acknowledged already (`rdma_ack_cm_event`), and holds its identifier, which holds the channel; a connect request also holds
/// who listened, who goes on listening meanwhile.
///
/// A connect request that nobody takes is rejected: the new identifier is in [`cm_id`](Self::cm_id), and dropping its last
/// owner, this event perhaps, says no to the peer.
#[doc(alias = "rdma_cm_event")]
#[derive(Clone)]
pub struct Event {
    id: Arc<Identifier>,
    listener: Option<Arc<Identifier>>,
    event_type: EventType,
    status: EventStatus,
    kind: EventKind,
}

impl Event {
    /// The identifier that it happened to; the new one of a connect request.
    pub fn cm_id(&self) -> &Arc<Identifier> {
        &self.id
    }

    /// Of a connect request: who listened.
    pub fn listener_id(&self) -> Option<&Arc<Identifier>> {
        self.listener.as_ref()
    }

    /// The channel of the identifier.
    pub fn event_channel(&self) -> Arc<EventChannel> {
        self.id.event_channel()
    }

    /// What happened, as C has it.
    pub fn event_type(&self) -> EventType {
        self.event_type
    }

    /// The status, as C has it; what it means, the [`kind`](Self::kind) tells.
    pub fn status(&self) -> EventStatus {
        self.status
    }

    /// What happened, with what came along.
    pub fn kind(&self) -> &EventKind {
        &self.kind
    }

    /// The same to keep, with the identifier.
    pub fn into_parts(self) -> (Arc<Identifier>, EventKind) {
        (self.id, self.kind)
    }

    /// Lets go of the event. It was acknowledged before it was handed out, so that this is what dropping does.
    #[doc(alias = "rdma_ack_cm_event")]
    pub fn ack(self) {}
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("id", &self.id)
            .field("event_type", &self.event_type)
            .field("status", &self.status)
            .field("kind", &self.kind)
            .finish()
    }
}

/// `rejected: nobody listens there`.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.event_type.fmt(f)?;
        match &self.kind {
            EventKind::Rejected(rejection) => write!(f, ": {rejection}"),
            EventKind::MulticastError(failure) => write!(f, ": {failure}"),
            EventKind::Unreachable(unreachable) => write!(f, ": {unreachable}"),
            _ if self.status.is_success() => Ok(()),
            _ => write!(f, ": {}", self.status),
        }
    }
}
