//! Reading and acknowledging events, some of which a test has written.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::rdma_cm_event_type as event_type;

use super::forward::below;
use super::outputs;
use super::state::{call, lock};
use crate::recording::{Kind, set_errno};

/// The contents of an event's union.
#[derive(Clone, Copy)]
pub enum ConnectionParameters {
    /// Zeros.
    None,
    /// The parameters of a connection.
    Connection(ffi::rdma_conn_param),
    /// The parameters of datagrams.
    Datagram(ffi::rdma_ud_param),
}

impl std::fmt::Debug for ConnectionParameters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Connection(_) => "Connection(..)",
            Self::Datagram(_) => "Datagram(..)",
        })
    }
}

/// An event to raise on a channel, with any contents.
#[derive(Clone, Debug)]
pub struct ConnectionEvent {
    /// `enum rdma_cm_event_type`.
    pub event: u32,
    /// Zero, a negative errno value, or a reason to reject.
    pub status: c_int,
    /// The identifier of the event; may be null.
    pub id: *mut ffi::rdma_cm_id,
    /// For a connect request: the listening identifier.
    pub listen_id: *mut ffi::rdma_cm_id,
    /// The other fields.
    pub parameters: ConnectionParameters,
}

// SAFETY: the pointers are passed on, and not dereferenced.
unsafe impl Send for ConnectionEvent {}

impl ConnectionEvent {
    /// An event of this type on this identifier, with status zero and no parameters.
    pub fn new(event: u32, id: *mut ffi::rdma_cm_id) -> Self {
        Self { event, status: 0, id, listen_id: std::ptr::null_mut(), parameters: ConnectionParameters::None }
    }
}

/// An event as softrnic created it.
pub(super) struct Original(ffi::rdma_cm_event);

// SAFETY: the value is only kept, and written back to its place.
unsafe impl Send for Original {}

/// The first of the numbers that carry events. A test's own events have others.
const CARRIERS: u64 = 0x0051_1000_0000_0000;

/// Adds an event to a channel: a user event of softrnic, which is replaced when it is read. The event counts for its
/// identifier if that belongs to the channel, otherwise for an identifier created for this purpose.
pub(super) fn raise(channel: *mut ffi::rdma_event_channel, event: ConnectionEvent) {
    static NEXT: AtomicU64 = AtomicU64::new(CARRIERS);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let table = &below().1;
    let is_live = lock().live.get(&event.id.addr()) == Some(&Kind::Identifier);
    // SAFETY: a live identifier can be read.
    let mut id = if is_live && unsafe { (*event.id).channel } == channel { event.id } else { std::ptr::null_mut() };
    lock().raised.insert(number, event);
    // SAFETY: the owner of the channel raises the event, so the channel is live, and so is the identifier.
    unsafe {
        if id.is_null() {
            let create = table.rdma_create_id.expect("softrnic has this function");
            let port_space = ffi::rdma_port_space::RDMA_PS_TCP;
            assert_eq!(create(channel, &mut id, std::ptr::null_mut(), port_space), 0, "no identifier for the event");
        }
        let write = table.since_v44.rdma_write_cm_event.expect("softrnic has this function");
        assert_eq!(write(id, event_type::RDMA_CM_EVENT_USER, 0, number), 0, "no event");
    }
}

/// `rdma_get_cm_event`.
pub(super) unsafe extern "C" fn get_cm_event(
    channel: *mut ffi::rdma_event_channel,
    event: *mut *mut ffi::rdma_cm_event,
) -> c_int {
    let arguments = [("channel", channel.expose_provenance() as u64), ("event", event.expose_provenance() as u64)];
    let mut errno = 0;
    let result = call("rdma_get_cm_event", &arguments, || {
        let table = &below().1;
        let take = table.rdma_get_cm_event.expect("softrnic has this function");
        let acknowledge = table.rdma_ack_cm_event.expect("softrnic has this function");
        loop {
            // SAFETY: the caller upholds the contract of the C function.
            let code = unsafe { take(channel, event) };
            if code != 0 {
                return code;
            }
            // SAFETY: the call has succeeded, so the event exists, and no other thread has it.
            let taken = unsafe { &mut **event };
            let mut state = lock();
            // librdmacm writes to the identifier of an event that it returns.
            if let Some((verb, _)) = state.running.get(&taken.id.addr()).and_then(|running| running.first()).copied() {
                state.violation(format!("rdma_get_cm_event wrote to an identifier while {verb} ran on it"));
            }
            // SAFETY: a user event has a number in place of the pointer of a connection.
            let number = unsafe { taken.param.conn.private_data }.addr() as u64;
            let is_own = taken.event == event_type::RDMA_CM_EVENT_USER;
            let raised = if is_own { state.raised.remove(&number) } else { None };
            if raised.is_none() && state.only_raised {
                drop(state);
                // SAFETY: the event was read, and is no longer used.
                unsafe { acknowledge(taken) };
                continue;
            }
            let rewrite = state.rewrite.take();
            state.originals.insert(std::ptr::from_mut(taken).addr(), Original(*taken));
            if taken.event == event_type::RDMA_CM_EVENT_CONNECT_REQUEST {
                state.made(Kind::Identifier, taken.id.addr());
            }
            let (behind, others): (Vec<_>, Vec<_>) = std::mem::take(&mut state.behind)
                .into_iter()
                .partition(|(at, _)| raised.is_none() && *at == channel.addr());
            state.behind = others;
            drop(state);
            behind.into_iter().for_each(|(_, event)| raise(channel, event));
            if let Some(raised) = raised {
                (taken.event, taken.status) = (event_type(raised.event), raised.status);
                (taken.id, taken.listen_id) = (raised.id, raised.listen_id);
                // SAFETY: all zeros are a valid value of the union, which has integers and nullable pointers.
                taken.param = unsafe { std::mem::zeroed() };
                match raised.parameters {
                    ConnectionParameters::None => {}
                    ConnectionParameters::Connection(parameters) => taken.param.conn = parameters,
                    ConnectionParameters::Datagram(parameters) => taken.param.ud = parameters,
                }
            }
            if let Some(rewrite) = rewrite {
                errno = rewrite(taken);
            }
            outputs::event(&mut lock().spoil, taken);
            return 0;
        }
    });
    if errno != 0 {
        set_errno(errno);
    }
    result
}

/// `rdma_ack_cm_event`.
pub(super) unsafe extern "C" fn ack_cm_event(event: *mut ffi::rdma_cm_event) -> c_int {
    let arguments = [("event", event.expose_provenance() as u64)];
    let is_done = Cell::new(false);
    let acknowledge = || {
        is_done.set(true);
        let original = lock().originals.remove(&event.addr());
        if let Some(Original(original)) = original {
            // SAFETY: the event was read and not acknowledged.
            unsafe { event.write(original) };
        }
        let acknowledge = below().1.rdma_ack_cm_event.expect("softrnic has this function");
        // SAFETY: the caller upholds the contract of the C function.
        unsafe { acknowledge(event) }
    };
    let result = call("rdma_ack_cm_event", &arguments, acknowledge);
    if result != 0 && !is_done.get() {
        // A failing call still acknowledges the event, because otherwise destroying the identifier would never return.
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        acknowledge();
        lock().live.remove(&event.addr());
        set_errno(errno);
    }
    result
}
