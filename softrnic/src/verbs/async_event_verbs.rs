//! `ibv_get_async_event` and `ibv_ack_async_event`.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use rdma_mummy_sys::{
    ibv_async_event, ibv_async_event__bindgen_ty_1 as Member, ibv_context, ibv_cq, ibv_event_type, ibv_qp, ibv_srq,
};

use super::async_event::{Acknowledged, AsyncEvent, Element};
use super::context::{Context, is_inherited};
use super::failure;

/// `ibv_get_async_event(context, event)`: zero, or -1 and errno.
pub(crate) unsafe extern "C" fn get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    // SAFETY: required by the C API: the context is open.
    let context = unsafe { Context::of(context) };
    let taken = context.events.take(|event| {
        if let Some(taken) = &event.taken {
            taken.fetch_add(1, Ordering::Relaxed);
        }
        event
    });
    let AsyncEvent { kind, element, .. } = match taken {
        Ok(taken) => taken,
        Err(errno) => return failure::minus_one(errno),
    };
    let element = match element {
        Element::Queue(cq) => Member { cq },
        Element::Pair(qp) => Member { qp },
        Element::Shared(srq) => Member { srq },
        Element::Port(port) => Member { port_num: port.into() },
        Element::Device => Member { port_num: 0 },
    };
    // SAFETY: required by the C API: the event is writable.
    unsafe { event.write(ibv_async_event { element, event_type: kind }) };
    0
}

/// `ibv_ack_async_event(event)`. In a child, this function ignores an event of the parent.
pub(crate) unsafe extern "C" fn ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: required by the C API: `get_async_event` has written the union member of its type, and its object exists
    // until this call.
    unsafe {
        let (context, acknowledgements) = match (*event).event_type {
            ibv_event_type::IBV_EVENT_CQ_ERR => {
                let cq = (*event).element.cq;
                ((*cq).context, ibv_cq::acknowledgements(cq))
            }
            ibv_event_type::IBV_EVENT_QP_FATAL
            | ibv_event_type::IBV_EVENT_QP_REQ_ERR
            | ibv_event_type::IBV_EVENT_QP_ACCESS_ERR
            | ibv_event_type::IBV_EVENT_COMM_EST
            | ibv_event_type::IBV_EVENT_SQ_DRAINED
            | ibv_event_type::IBV_EVENT_PATH_MIG
            | ibv_event_type::IBV_EVENT_PATH_MIG_ERR
            | ibv_event_type::IBV_EVENT_QP_LAST_WQE_REACHED => {
                let qp = (*event).element.qp;
                ((*qp).context, ibv_qp::acknowledgements(qp))
            }
            ibv_event_type::IBV_EVENT_SRQ_ERR | ibv_event_type::IBV_EVENT_SRQ_LIMIT_REACHED => {
                let srq = (*event).element.srq;
                ((*srq).context, ibv_srq::acknowledgements(srq))
            }
            // Events of ports and devices need no acknowledgement.
            _ => return,
        };
        if !is_inherited(context) {
            acknowledgements.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{MaybeUninit, zeroed};
    use std::ptr;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;
    use crate::qp::{PairEvent, PairEvents};
    use crate::srq::ReceiveEvents;
    use crate::verbs::async_event::Source;
    use crate::verbs::{context::close_device, open::open_device};

    /// How often the test yields. A thread that wrongly does not wait would have continued by then.
    const YIELDS: usize = if cfg!(miri) { 20 } else { 1_000 };

    /// Opens a device whose events do not block.
    fn open() -> *mut ibv_context {
        // SAFETY: `open_device` does not dereference the device.
        unsafe {
            let context = open_device(ptr::null_mut());
            if !cfg!(miri) {
                libc::fcntl((*context).async_fd, libc::F_SETFL, libc::O_NONBLOCK);
            }
            context
        }
    }

    fn close(context: *mut ibv_context) {
        // SAFETY: the context is no longer used.
        assert_eq!(unsafe { close_device(context) }, 0);
    }

    fn take(context: *mut ibv_context) -> Option<ibv_async_event> {
        let mut event = MaybeUninit::uninit();
        // SAFETY: the context is open, and the event is writable.
        unsafe { (get_async_event(context, event.as_mut_ptr()) == 0).then(|| event.assume_init()) }
    }

    #[test]
    fn port_and_device_events_need_no_acknowledgement() {
        let context = open();
        // SAFETY: the context is open.
        let events = &unsafe { Context::of(context) }.events;
        events.put(AsyncEvent::of_port(ibv_event_type::IBV_EVENT_PORT_ERR, 1));
        events.put(AsyncEvent::of_device(ibv_event_type::IBV_EVENT_DEVICE_FATAL));
        let mut taken = [0; 2].map(|_| take(context).expect("two events"));
        assert_eq!(taken[0].event_type, ibv_event_type::IBV_EVENT_PORT_ERR);
        assert_eq!(taken[1].event_type, ibv_event_type::IBV_EVENT_DEVICE_FATAL);
        // SAFETY: the type selects the union member, and both events came from this queue.
        unsafe {
            assert_eq!(taken[0].element.port_num, 1);
            taken.iter_mut().for_each(|event| ack_async_event(event));
        }
        assert!(take(context).is_none());
        close(context);
    }

    #[test]
    fn events_name_their_qp() {
        let context = open();
        // SAFETY: the type has only numbers and nullable pointers, for which zero is valid.
        let mut qps: [ibv_qp; 2] = unsafe { zeroed() };
        let pointers = [&raw mut qps[0], &raw mut qps[1]];
        // SAFETY: the context is open.
        let sources = [0; 2].map(|_| Source::<ibv_qp>::new(&unsafe { Context::of(context) }.events));
        sources[0].happened(PairEvent::Fatal);
        assert!(take(context).is_none(), "it has no object yet");
        for (source, qp) in sources.iter().zip(pointers) {
            // SAFETY: `qp` lives until the end of the test, and only the source uses it.
            unsafe { source.begin(qp) };
        }
        let kinds = [
            (PairEvent::Fatal, ibv_event_type::IBV_EVENT_QP_FATAL),
            (PairEvent::RequestError, ibv_event_type::IBV_EVENT_QP_REQ_ERR),
            (PairEvent::AccessError, ibv_event_type::IBV_EVENT_QP_ACCESS_ERR),
            (PairEvent::Established, ibv_event_type::IBV_EVENT_COMM_EST),
            (PairEvent::SendQueueDrained, ibv_event_type::IBV_EVENT_SQ_DRAINED),
            (PairEvent::LastReceiveReached, ibv_event_type::IBV_EVENT_QP_LAST_WQE_REACHED),
        ];
        kinds.iter().for_each(|&(event, _)| sources[0].happened(event));
        for (_, kind) in kinds {
            let mut event = take(context).expect("one event per call");
            assert_eq!(event.event_type, kind);
            // SAFETY: the event came from this provider, and its type is that of a queue pair.
            unsafe {
                assert_eq!(event.element.qp, pointers[0]);
                ack_async_event(&mut event);
            }
        }
        // An event that was not taken is removed when its object is destroyed, not before.
        sources.iter().for_each(|source| source.happened(PairEvent::Fatal));
        // SAFETY: no more events are raised, and one more event of the second source is taken.
        unsafe {
            sources[0].finish();
            let mut event = take(context).expect("the event of the second QP");
            assert_eq!(event.element.qp, pointers[1]);
            assert!(take(context).is_none());
            ack_async_event(&mut event);
            // Additional acknowledgements are harmless.
            ack_async_event(&mut event);
            sources[1].finish();
            sources[1].finish();
            assert_eq!(((*pointers[0]).events_completed, (*pointers[1]).events_completed), (6, 2));
        }
        close(context);
    }

    #[test]
    fn srq_destruction_waits_for_the_acknowledgement() {
        let context = open();
        // SAFETY: the type has only numbers and nullable pointers, for which zero is valid.
        let mut srq: ibv_srq = unsafe { zeroed() };
        let pointer = &raw mut srq;
        // SAFETY: the context is open.
        let source = Source::<ibv_srq>::new(&unsafe { Context::of(context) }.events);
        // SAFETY: the object lives until the end of the test, and only the source uses it.
        unsafe { source.begin(pointer) };
        source.limit_reached();
        let mut event = take(context).expect("the limit event");
        // SAFETY: an event of this type has this union member.
        assert_eq!(unsafe { event.element.srq }, pointer);
        let is_acknowledged = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: no more events are raised.
                unsafe { source.finish() };
                assert!(is_acknowledged.load(Ordering::Acquire), "the thread waited for the acknowledgement");
            });
            (0..YIELDS).for_each(|_| thread::yield_now());
            is_acknowledged.store(true, Ordering::Release);
            // SAFETY: the event came from here.
            unsafe { ack_async_event(&mut event) };
        });
        close(context);
    }
}
