//! Events of completion queues, and their acknowledgement.

use std::sync::atomic::AtomicBool;

use super::*;

/// How often a test yields. A thread that wrongly does not wait would have continued by then.
const YIELDS: usize = if cfg!(miri) { 20 } else { 1_000 };

#[test]
fn event_names_its_queue() {
    let world = World::new();
    let (first, second) = (world.basic(4), world.basic(4));
    // SAFETY: the objects are alive.
    unsafe {
        push(first, [0]);
        assert_eq!(world.event(), None, "no event was requested");
        assert_eq!((req_notify_cq(first, 0), req_notify_cq(second, 1)), (0, 0));
        assert_eq!((world.event(), world.event()), (Some((first, 0x77)), None), "the completion is not polled");
        assert_eq!(req_notify_cq(first, 0), 0);
        assert_eq!(world.event(), None, "an event has announced the completion");
        push(second, [0]);
        assert_eq!(world.event(), None, "the completion is not solicited");
        push(first, [1]);
        assert_eq!(world.event(), Some((first, 0x77)));
        queue(second).push(completion(1), true);
        assert_eq!((world.event(), world.event()), (Some((second, 0x77)), None));
        assert_eq!(destroy_comp_channel(world.channel), libc::EBUSY);
        ack_cq_events(first, 2);
        ack_cq_events(second, 1);
        assert_eq!(((*first).comp_events_completed, (*second).async_events_completed), (2, 0));
    }
    // A queue without a channel raises no event.
    let silent = world.extended(world.attr(0)).expect("a queue").cast();
    // SAFETY: the queue is alive.
    assert_eq!(unsafe { req_notify_cq(silent, 0) }, 0);
    push(silent, [0]);
    assert_eq!(world.event(), None);
    [first, second, silent].into_iter().for_each(destroy);
}

#[test]
fn destroyed_queue_removes_its_unread_events() {
    let world = World::new();
    let (first, second) = (world.basic(1), world.basic(1));
    // SAFETY: the queues are alive.
    unsafe { assert_eq!((req_notify_cq(first, 0), req_notify_cq(second, 0)), (0, 0)) };
    // Each queue raises a completion event and an overrun event.
    push(first, [0, 1]);
    push(second, [0, 1]);
    destroy(first);
    assert_eq!((world.event(), world.event()), (Some((second, 0x77)), None));
    let mut event = world.async_event().expect("the event of the other queue");
    assert_eq!(event.event_type, ibv_event_type::IBV_EVENT_CQ_ERR);
    assert!(world.async_event().is_none());
    // SAFETY: an event of this type contains a queue, and the queue is alive.
    unsafe {
        assert_eq!(event.element.cq, second);
        ack_cq_events(second, 1);
        ack_async_event(&raw mut event);
        assert_eq!(((*second).comp_events_completed, (*second).async_events_completed), (1, 1));
    }
    destroy(second);
}

#[test]
fn queue_destruction_waits_for_each_acknowledgement() {
    let world = World::new();
    let cq = world.basic(1);
    // SAFETY: the queue is alive.
    unsafe { assert_eq!(req_notify_cq(cq, 0), 0) };
    push(cq, [0, 1]);
    assert_eq!(world.event(), Some((cq, 0x77)));
    let mut event = world.async_event().expect("the overrun event");
    let (shared, acknowledged, gone) = (Shared(cq), AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let (shared, acknowledged, gone) = (&shared, &acknowledged, &gone);
        scope.spawn(move || {
            destroy(shared.0);
            assert_eq!(acknowledged.load(Ordering::Acquire), 2);
            gone.store(true, Ordering::Release);
        });
        (0..YIELDS).for_each(|_| thread::yield_now());
        assert!(!gone.load(Ordering::Acquire));
        acknowledged.fetch_add(1, Ordering::AcqRel);
        // SAFETY: the queue is alive until both are acknowledged.
        unsafe { ack_cq_events(cq, 1) };
        (0..YIELDS).for_each(|_| thread::yield_now());
        assert!(!gone.load(Ordering::Acquire));
        acknowledged.fetch_add(1, Ordering::AcqRel);
        // SAFETY: as above.
        unsafe { ack_async_event(&raw mut event) };
    });
    assert!(gone.load(Ordering::Acquire));
}
