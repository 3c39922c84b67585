//! `struct ibv_async_event`: an event and its object.

use std::fmt;

use rdma_mummy_sys::ibv_async_event;

use super::AsyncEventType;
use super::event_type::Subject;
use crate::ffi::Found;
use crate::ibverbs::completion::{CompletionQueue, CompletionQueueRef};
use crate::ibverbs::device_context::AffiliatedObjects;
use crate::ibverbs::queue_pair::QueuePairRef;
use crate::ibverbs::shared_receive_queue::SharedReceiveQueueRef;
use crate::ibverbs::work_queue::WorkQueueRef;

/// `struct ibv_async_event` — an event of the device, of a port, or of an object. It is already acknowledged.
///
/// The event keeps its C object and that object's parents alive. If the event holds the last reference, dropping the
/// event destroys the object, on the same thread.
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

    /// Returns the type of the event.
    pub fn event_type(&self) -> AsyncEventType {
        self.event_type
    }

    /// Returns the object of the event.
    pub fn element(&self) -> &AsyncEventElement {
        &self.element
    }

    /// Converts the event to its object.
    pub fn into_element(self) -> AsyncEventElement {
        self.element
    }
}

/// Formats the event as one line, such as `port active: port 1` or `send queue drained: QP 17`.
impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.event_type.fmt(f)?;
        match &self.element {
            AsyncEventElement::CompletionQueue(cq) => write!(f, ": CQ with the context {}", cq.cq_context()),
            AsyncEventElement::QueuePair(qp) => write!(f, ": QP {}", qp.qp_number()),
            AsyncEventElement::SharedReceiveQueue(srq) => write!(f, ": SRQ with the context {}", srq.srq_context()),
            AsyncEventElement::WorkQueue(queue) => write!(f, ": WQ {}", queue.wq_number()),
            AsyncEventElement::Port(port) => write!(f, ": port {port}"),
            AsyncEventElement::Foreign(address) => write!(f, ": foreign object at {address:#x}"),
            AsyncEventElement::Device | AsyncEventElement::Unknown => Ok(()),
        }
    }
}

const _: () = {
    const fn is_shared_between_threads<T: Send + Sync + 'static>() {}
    is_shared_between_threads::<AsyncEvent>();
    is_shared_between_threads::<super::AsyncEventChannel>();
};

/// The object of an event.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AsyncEventElement {
    /// A completion queue.
    CompletionQueue(CompletionQueueRef),
    /// A queue pair.
    QueuePair(QueuePairRef),
    /// A shared receive queue.
    SharedReceiveQueue(SharedReceiveQueueRef),
    /// A work queue.
    WorkQueue(WorkQueueRef),
    /// A port of the device, from 1.
    Port(u32),
    /// The device as a whole.
    Device,
    /// The address of another object: one that this crate did not create on this device context, or one that is
    /// confined to its thread. Use the address only for comparisons. The event is already acknowledged, so the object
    /// may already be destroyed.
    Foreign(usize),
    /// This version of the crate does not know the type of the event, and so cannot read its object.
    Unknown,
}

impl AsyncEventElement {
    /// Returns the object that the event names, or `None` if that object is being destroyed.
    ///
    /// # Safety
    ///
    /// - `event` was zeroed and then filled by `ibv_get_async_event`.
    /// - The event is not acknowledged yet, so its object is not destroyed.
    pub(super) unsafe fn find(objects: &AffiliatedObjects, event: &ibv_async_event) -> Option<Self> {
        let element = event.element;
        // SAFETY: each member is read only if the event's type implies that the library wrote it. All values are valid,
        // because the bytes were zero before. The pointers are compared and not dereferenced.
        unsafe {
            match AsyncEventType::from_raw(event.event_type.0).subject() {
                Subject::CompletionQueue => {
                    let found = objects.find(element.cq);
                    named(found, element.cq, |cq| Self::CompletionQueue(CompletionQueueRef::new(cq)))
                }
                Subject::QueuePair => {
                    let found = objects.find(element.qp);
                    named(found, element.qp, |qp| Self::QueuePair(QueuePairRef::new(qp)))
                }
                Subject::SharedReceiveQueue => {
                    let found = objects.find(element.srq);
                    named(found, element.srq, |srq| Self::SharedReceiveQueue(SharedReceiveQueueRef::new(srq)))
                }
                Subject::WorkQueue => {
                    let found = objects.find(element.wq);
                    named(found, element.wq, |wq| Self::WorkQueue(WorkQueueRef::new(wq)))
                }
                Subject::Port => Some(u32::try_from(element.port_num).map_or(Self::Unknown, Self::Port)),
                Subject::Device => Some(Self::Device),
                Subject::Unknown => Some(Self::Unknown),
            }
        }
    }
}

fn named<T, C>(
    found: Found<T>,
    raw: *const C,
    element: impl FnOnce(std::sync::Arc<T>) -> AsyncEventElement,
) -> Option<AsyncEventElement> {
    match found {
        Found::Object(object) => Some(element(object)),
        Found::Leaving => None,
        Found::Foreign => Some(AsyncEventElement::Foreign(raw.addr())),
    }
}
