//! An object's own end of the asynchronous events of its context.

use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rdma_mummy_sys::{ibv_event_type, ibv_qp, ibv_srq};

use super::{Acknowledged, AsyncEvent};
use crate::qp::{PairEvent, PairEvents};
use crate::srq::ReceiveEvents;
use crate::verbs::event_fd_queue::EventFdQueue;

/// Where an object puts its asynchronous events. A queue pair or queue holds one end, and what C sees of the object the other:
///
/// 1. [`new`](Self::new), and a clone for it: `Box::new(Arc::clone(&source))` is a `PairEvents` or a `ReceiveEvents`.
/// 2. [`begin`](Self::begin), once the object lies where C has it.
/// 3. [`finish`](Self::finish), when it is destroyed and puts no events any more.
pub(crate) struct Source<C> {
    events: Arc<EventFdQueue<AsyncEvent>>,
    object: AtomicPtr<C>,
    taken: Arc<AtomicU32>,
}

impl<C: Acknowledged> Source<C> {
    /// `events` are those of the context.
    pub(crate) fn new(events: &Arc<EventFdQueue<AsyncEvent>>) -> Arc<Self> {
        Arc::new(Self {
            events: Arc::clone(events),
            object: AtomicPtr::new(ptr::null_mut()),
            taken: Arc::new(AtomicU32::new(0)),
        })
    }

    /// The object is made: it has this name in its events from now on, and its mutex and its condition are made ready.
    ///
    /// # Safety
    ///
    /// `object` is there until [`finish`](Self::finish), and nobody uses it yet.
    pub(crate) unsafe fn begin(&self, object: *mut C) {
        // SAFETY: the caller's promise.
        unsafe { C::acknowledgements(object).begin() };
        self.object.store(object, Ordering::Release);
    }

    /// The object, or null before [`begin`](Self::begin).
    pub(crate) fn object(&self) -> *mut C {
        self.object.load(Ordering::Acquire)
    }

    /// Puts an event of the object, once it has begun.
    pub(crate) fn put(&self, kind: ibv_event_type) {
        let object = self.object();
        if !object.is_null() {
            let taken = Some(Arc::clone(&self.taken));
            self.events.put(AsyncEvent { kind, element: C::element(object), taken });
        }
    }

    /// The object goes: takes back its events that nobody has taken, waits until the others are acknowledged, and ends its mutex and
    /// its condition. Without effect where it had not begun.
    ///
    /// # Safety
    ///
    /// No event of the object is put any more, and nobody else uses it but to acknowledge events.
    pub(crate) unsafe fn finish(&self) {
        let object = self.object.swap(ptr::null_mut(), Ordering::AcqRel);
        if object.is_null() {
            return;
        }
        let element = C::element(object);
        self.events.remove(|event| event.element == element);
        // SAFETY: the promise of `begin`: the object is there; whoever has taken one of its events uses it until the acknowledgement.
        unsafe {
            let acknowledgements = C::acknowledgements(object);
            // Counted under the lock that `remove` has had: none is missing.
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
