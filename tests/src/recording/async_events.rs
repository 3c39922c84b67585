//! Asynchronous events: raised by a test, read and acknowledged as the library does.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use libc::c_int;
use rdma_mummy_sys as ffi;
use sideway::ibverbs::completion::CompletionQueue;
use sideway::ibverbs::queue_pair::QueuePair;

use super::device::state_of;
use super::failure::set_errno;
use super::semaphore;
use super::state::{Inner, State};
use super::stub::stubs;

/// How long the destruction of an object waits for an acknowledgement before it is a violation.
const PATIENCE: Duration = Duration::from_secs(60);

/// An event to raise: its type as in C, and the contents of the union.
#[derive(Clone, Copy, Debug)]
pub struct Raised {
    event_type: u32,
    element: Element,
}

#[derive(Clone, Copy, Debug)]
enum Element {
    /// The object with this address.
    Object(usize),
    Port(c_int),
    /// The union is not written.
    Nothing,
}

impl Raised {
    /// Of a completion queue.
    pub fn of_cq(event_type: u32, cq: &impl CompletionQueue) -> Self {
        // SAFETY: the pointer becomes a number.
        Self::of_object(event_type, unsafe { cq.cq() }.as_ptr())
    }

    /// Of a queue pair.
    pub fn of_qp(event_type: u32, qp: &impl QueuePair) -> Self {
        // SAFETY: the pointer becomes a number.
        Self::of_object(event_type, unsafe { qp.qp() }.as_ptr())
    }

    /// An event of an object that begins with its context.
    pub fn of_object<T>(event_type: u32, object: *mut T) -> Self {
        Self { event_type, element: Element::Object(object.expose_provenance()) }
    }

    /// An event of a port.
    pub fn of_port(event_type: u32, port: c_int) -> Self {
        Self { event_type, element: Element::Port(port) }
    }

    /// Of the device.
    pub fn of_device(event_type: u32) -> Self {
        Self { event_type, element: Element::Nothing }
    }
}

/// Raised events by context, and unacknowledged ones by object.
#[derive(Default)]
pub(super) struct AsyncEvents {
    contexts: BTreeMap<usize, Waiting>,
    /// Events that were read and not acknowledged.
    taken: BTreeMap<usize, u32>,
}

struct Waiting {
    fd: c_int,
    events: VecDeque<Raised>,
}

/// Handles a new context; returns its descriptor.
pub(super) fn opened(inner: &mut Inner, context: usize) -> c_int {
    if inner.script.without.contains("async_fd") {
        return -1;
    }
    let fd = semaphore::new();
    inner.async_events.contexts.insert(context, Waiting { fd, events: VecDeque::new() });
    fd
}

/// Handles a closed context.
pub(super) fn closed(inner: &mut Inner, context: usize) {
    if let Some(waiting) = inner.async_events.contexts.remove(&context) {
        // SAFETY: the descriptor is the context's own.
        unsafe { libc::close(waiting.fd) };
    }
}

/// Raises an event on a context.
pub(super) fn raise(inner: &mut Inner, context: usize, event: Raised) {
    let waiting = inner.async_events.contexts.get_mut(&context);
    let Some(waiting) = waiting else { return inner.violation("an event was raised on a context that does not exist") };
    waiting.events.push_back(event);
    // SAFETY: the descriptor is the context's own, which is open.
    unsafe { semaphore::put(waiting.fd, 1) };
}

/// Handles the destruction of an object as the library does: drops its queued events, and waits for the acknowledgement
/// of those that were read.
pub(super) fn destroyed(state: &State, object: usize) {
    let mut inner = state.lock();
    for waiting in inner.async_events.contexts.values_mut() {
        let before = waiting.events.len();
        waiting.events.retain(|event| !matches!(event.element, Element::Object(other) if other == object));
        for _ in waiting.events.len()..before {
            // SAFETY: the descriptor is the context's own, which is open.
            unsafe { semaphore::take(waiting.fd) };
        }
    }
    let pending = |inner: &mut Inner| inner.async_events.taken.get(&object).is_some_and(|&taken| taken > 0);
    let waited = state.acknowledged.wait_timeout_while(inner, PATIENCE, pending);
    let (mut inner, timeout) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
    if timeout.timed_out() {
        inner.violation("an asynchronous event was never acknowledged");
    }
    inner.async_events.taken.remove(&object);
}

stubs! {
    fn ibv_get_async_event(context: *mut ffi::ibv_context, event: *mut ffi::ibv_async_event) -> c_int
        [context] |inner|
    {
        drop(inner);
        // This read holds no lock, because a descriptor in blocking mode waits here.
        if !semaphore::take((*context).async_fd) {
            return -1;
        }
        let mut inner = state_of(context).lock();
        let waiting = inner.async_events.contexts.get_mut(&context.addr());
        let Some(raised) = waiting.and_then(|waiting| waiting.events.pop_front()) else {
            // The object was destroyed after the token was read and before the lock was taken.
            set_errno(libc::EAGAIN);
            return -1;
        };
        (*event).event_type = ffi::ibv_event_type(raised.event_type);
        inner.spoil.tag("get_async_event: type", &raw mut (*event).event_type);
        // As in the library, events of unknown types have no object.
        let known = (*event).event_type.0 == raised.event_type;
        match raised.element {
            Element::Object(object) => {
                if known {
                    *inner.async_events.taken.entry(object).or_default() += 1;
                }
                (*event).element.cq = std::ptr::with_exposed_provenance_mut(object);
            }
            Element::Port(port) => {
                (*event).element.port_num = port;
                inner.output("get_async_event: port", &raw mut (*event).element.port_num);
            }
            Element::Nothing => {}
        }
        0
    }
}

/// Called only for events of objects; other events are acknowledged without a provider.
pub(super) unsafe extern "C" fn ibv_ack_async_event(event: *mut ffi::ibv_async_event) {
    // SAFETY: every object begins with its context, and objects are never freed.
    unsafe {
        let object = (*event).element.cq;
        let state = state_of((*object).context);
        let arguments = [("event_type", (*event).event_type.0.into()), ("object", object.addr() as u64)];
        let mut inner = state.note("ack_async_event", &arguments);
        match inner.async_events.taken.get_mut(&object.addr()) {
            Some(taken) if *taken > 0 => *taken -= 1,
            _ => inner.violation("an asynchronous event that was not read was acknowledged"),
        }
        drop(inner);
        state.acknowledged.notify_all();
    }
}
