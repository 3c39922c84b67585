//! `struct rdma_cm_event`: an event of an identifier.

mod info;
mod kind;
mod raw;

use std::fmt;
use std::sync::Arc;

pub use info::{ConnectionInfo, MulticastFailure, MulticastMembership, Rejection, RemoteDatagram, Unreachable};
pub use kind::EventKind;
pub(super) use raw::RawEvent;

use super::{EventChannel, EventStatus, EventType, Identifier};

/// `struct rdma_cm_event` — an event of an identifier, with a copy of its C data.
///
/// The event is already acknowledged (`rdma_ack_cm_event`). It keeps its identifier alive, and the identifier keeps the
/// channel alive. A connect request also keeps its listener alive.
///
/// If the program drops a connect request, the request is rejected. The reason is that the new identifier is in
/// [`cm_id`](Self::cm_id), and that dropping the last owner of this identifier rejects the request.
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
    /// Returns the event's identifier. For a connect request, this is the new identifier.
    pub fn cm_id(&self) -> &Arc<Identifier> {
        &self.id
    }

    /// Returns the listener of a connect request.
    pub fn listener_id(&self) -> Option<&Arc<Identifier>> {
        self.listener.as_ref()
    }

    /// Returns the identifier's channel.
    pub fn event_channel(&self) -> Arc<EventChannel> {
        self.id.event_channel()
    }

    /// Returns the C type of the event.
    pub fn event_type(&self) -> EventType {
        self.event_type
    }

    /// Returns the C status of the event. [`kind`](Self::kind) returns its meaning.
    pub fn status(&self) -> EventStatus {
        self.status
    }

    /// Returns the kind of the event, with its data.
    pub fn kind(&self) -> &EventKind {
        &self.kind
    }

    /// Splits the event into its identifier and its kind.
    pub fn into_parts(self) -> (Arc<Identifier>, EventKind) {
        (self.id, self.kind)
    }

    /// Drops the event. It was acknowledged before it was returned.
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

/// Formats the event as text, such as `rejected: no listener on that port`.
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
