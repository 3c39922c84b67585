//! `struct ibv_async_event`: what happened, and to what.

use std::fmt;

use super::{AsyncEventElement, AsyncEventType};
use crate::ibverbs::completion::CompletionQueue;

/// `struct ibv_async_event` — something happened to the device, a port, or an object. It is acknowledged already.
///
/// It keeps the C object that it is about alive, with all that this was made from. Where it is the last to do so, dropping it
/// destroys the object, on the thread that drops it.
#[doc(alias = "ibv_async_event")]
#[derive(Clone, Debug)]
pub struct AsyncEvent {
    event_type: AsyncEventType,
    element: AsyncEventElement,
}

impl AsyncEvent {
    pub(super) fn new(event_type: AsyncEventType, element: AsyncEventElement) -> Self {
        Self { event_type, element }
    }

    /// What happened.
    pub fn event_type(&self) -> AsyncEventType {
        self.event_type
    }

    /// To what it happened.
    pub fn element(&self) -> &AsyncEventElement {
        &self.element
    }

    /// To what it happened, for who wants to keep that.
    pub fn into_element(self) -> AsyncEventElement {
        self.element
    }
}

/// As one line: `port active: port 1`, `send queue drained: QP 17`.
impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.event_type.fmt(f)?;
        match &self.element {
            AsyncEventElement::CompletionQueue(cq) => write!(f, ": CQ with the context {}", cq.cq_context()),
            AsyncEventElement::QueuePair(qp) => write!(f, ": QP {}", qp.qp_number()),
            AsyncEventElement::SharedReceiveQueue(srq) => write!(f, ": SRQ with the context {}", srq.srq_context()),
            AsyncEventElement::WorkQueue(queue) => write!(f, ": WQ {}", queue.wq_number()),
            AsyncEventElement::Port(port) => write!(f, ": port {port}"),
            AsyncEventElement::Foreign(address) => write!(f, ": object of other code at {address:#x}"),
            AsyncEventElement::Device | AsyncEventElement::Unknown => Ok(()),
        }
    }
}

const _: () = {
    const fn is_shared_between_threads<T: Send + Sync + 'static>() {}
    is_shared_between_threads::<AsyncEvent>();
    is_shared_between_threads::<super::AsyncEventChannel>();
};
