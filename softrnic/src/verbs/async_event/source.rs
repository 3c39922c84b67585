//! The asynchronous events of an object.

use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rdma_mummy_sys::{ibv_event_type, ibv_qp, ibv_srq};

use super::{Acknowledged, AsyncEvent};
use crate::qp::{PairEvent, PairEvents};
use crate::srq::ReceiveEvents;
use crate::verbs::event_fd_queue::EventFdQueue;

/// The source of the asynchronous events of an object. The QP or queue has one reference to the source, and its C
/// object has the other. The source is used as follows:
///
/// 1. [`new`](Self::new), with a clone: `Box::new(Arc::clone(&source))` is a `PairEvents` or a `ReceiveEvents`.
/// 2. [`begin`](Self::begin), once the C object is at its final address.
/// 3. [`finish`](Self::finish), when the object is destroyed and raises no more events.
pub(crate) struct Source<C> {
    events: Arc<EventFdQueue<AsyncEvent>>,
    object: AtomicPtr<C>,
    taken: Arc<AtomicU32>,
}

impl<C: Acknowledged> Source<C> {
    /// Creates a source for the event queue of a context.
    pub(crate) fn new(events: &Arc<EventFdQueue<AsyncEvent>>) -> Arc<Self> {
        Arc::new(Self {
            events: Arc::clone(events),
            object: AtomicPtr::new(ptr::null_mut()),
            taken: Arc::new(AtomicU32::new(0)),
        })
    }

    /// Sets the address of the C object that its events contain, and initializes the mutex and the condition variable
    /// of this object.
    ///
    /// # Safety
    ///
    /// `object` lives until [`finish`](Self::finish), and is not used yet.
    pub(crate) unsafe fn begin(&self, object: *mut C) {
        // SAFETY: guaranteed by the caller.
        unsafe { C::acknowledgements(object).begin() };
        self.object.store(object, Ordering::Release);
    }

    /// The object, or null before [`begin`](Self::begin).
    pub(crate) fn object(&self) -> *mut C {
        self.object.load(Ordering::Acquire)
    }

    /// Queues an event of the object, if [`begin`](Self::begin) was called.
    pub(crate) fn put(&self, kind: ibv_event_type) {
        let object = self.object();
        if !object.is_null() {
            let taken = Some(Arc::clone(&self.taken));
            self.events.put(AsyncEvent { kind, element: C::element(object), taken });
        }
    }

    /// Ends the events of the object. Removes the events that were not taken, waits until the others are acknowledged,
    /// and destroys the mutex and the condition variable of the object. Has no effect before [`begin`](Self::begin).
    ///
    /// # Safety
    ///
    /// The object raises no more events, and is used only to acknowledge events.
    pub(crate) unsafe fn finish(&self) {
        let object = self.object.swap(ptr::null_mut(), Ordering::AcqRel);
        if object.is_null() {
            return;
        }
        let element = C::element(object);
        self.events.remove(|event| event.element == element);
        // SAFETY: `begin` requires that the object is alive until now. A program that has taken an event uses the
        // object until it acknowledges the event.
        unsafe {
            let acknowledgements = C::acknowledgements(object);
            // Taken events are counted under the lock of the queue, which `remove` has held, so the count is complete.
            acknowledgements.wait_for(self.taken.load(Ordering::Relaxed));
            acknowledgements.end();
        }
    }
}

impl<C> fmt::Debug for Source<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("object", &self.object).field("taken", &self.taken).finish_non_exhaustive()
    }
}

impl PairEvents for Arc<Source<ibv_qp>> {
    fn happened(&self, event: PairEvent) {
        self.put(match event {
            PairEvent::Fatal => ibv_event_type::IBV_EVENT_QP_FATAL,
            PairEvent::RequestError => ibv_event_type::IBV_EVENT_QP_REQ_ERR,
            PairEvent::AccessError => ibv_event_type::IBV_EVENT_QP_ACCESS_ERR,
            PairEvent::Established => ibv_event_type::IBV_EVENT_COMM_EST,
            PairEvent::SendQueueDrained => ibv_event_type::IBV_EVENT_SQ_DRAINED,
            PairEvent::LastReceiveReached => ibv_event_type::IBV_EVENT_QP_LAST_WQE_REACHED,
        });
    }
}

impl ReceiveEvents for Arc<Source<ibv_srq>> {
    fn limit_reached(&self) {
        self.put(ibv_event_type::IBV_EVENT_SRQ_LIMIT_REACHED);
    }
}
