//! What an event is about.

use rdma_mummy_sys::ibv_async_event;

use super::AffiliatedObjects;
use super::event_type::{AsyncEventType, Subject};
use crate::ffi::Found;
use crate::ibverbs::completion::CompletionQueueRef;
use crate::ibverbs::queue_pair::QueuePairRef;
use crate::ibverbs::shared_receive_queue::SharedReceiveQueueRef;
use crate::ibverbs::work_queue::WorkQueueRef;

/// What an event is about.
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
    /// An object that other code has made on the same device context, or one that stays with its thread: its address.
    /// That is a number to compare, not to follow: the event is acknowledged, and the object may be gone.
    Foreign(usize),
    /// The event's type is not known to this version of the crate, and so what it is about is not either.
    Unknown,
}

impl AsyncEventElement {
    /// What the event names; `None` for an object that is being destroyed.
    ///
    /// # Safety
    ///
    /// - `event` was zeroed and then filled by `ibv_get_async_event`.
    /// - It is not acknowledged yet: its object, whoever made it, is not destroyed.
    pub(super) unsafe fn find(objects: &AffiliatedObjects, event: &ibv_async_event) -> Option<Self> {
        let element = event.element;
        // SAFETY: each member is read where the event's type says that it was written, and none is an invalid value for any bytes:
        // all were zero before. The pointers are compared and not followed.
        unsafe {
            match AsyncEventType::from_raw(event.event_type.0).subject() {
                Subject::CompletionQueue => {
                    let found = objects.completion_queues.find(element.cq);
                    named(found, element.cq, |cq| Self::CompletionQueue(CompletionQueueRef::new(cq)))
                }
                Subject::QueuePair => {
                    let found = objects.queue_pairs.find(element.qp);
                    named(found, element.qp, |qp| Self::QueuePair(QueuePairRef::new(qp)))
                }
                Subject::SharedReceiveQueue => {
                    let found = objects.shared_receive_queues.find(element.srq);
                    named(found, element.srq, |srq| Self::SharedReceiveQueue(SharedReceiveQueueRef::new(srq)))
                }
                Subject::WorkQueue => {
                    let found = objects.work_queues.find(element.wq);
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
