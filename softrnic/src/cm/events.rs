//! `struct rdma_cm_event`: how events are queued, processed when the program takes them, and acknowledged.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::Arc;

use rdma_mummy_sys::{
    ibv_qp_type, rdma_cm_event, rdma_cm_event_type as event_type, rdma_cm_id, rdma_conn_param, rdma_event_channel,
    rdma_ud_param,
};

use super::calls::return_code;
use super::id::{Identifier, State};
use super::listen::Request;
use super::{ACKNOWLEDGED, World, connect, iwarp, multicast, transition, unknown, world};
use crate::sys::errno::Errno;
use crate::verbs::device::Device;
use crate::verbs::event_fd_queue::EventFdQueue;
use crate::wire::transport::Fabric;

/// The largest value of `private_data_len`.
const MAX_DATA: usize = 255;

/// The parameters of an event, which in C are a union.
#[derive(Clone, Copy)]
pub(super) enum Parameters {
    None,
    Connection(rdma_conn_param),
    Datagram(rdma_ud_param),
}

/// A queued event.
pub(super) struct Pending {
    /// The identifier that counts the event. For a connect request, it is the listener.
    pub(super) owner: usize,
    pub(super) event: event_type,
    pub(super) status: c_int,
    pub(super) parameters: Parameters,
    pub(super) data: Vec<u8>,
    pub(super) request: Option<Request>,
    /// The number of the multicast group to which the event belongs, if any.
    pub(super) group: Option<u64>,
}

// SAFETY: the pointers belong to the program, and are never dereferenced here.
unsafe impl Send for Pending {}

impl Pending {
    pub(super) fn new(owner: usize, event: event_type) -> Self {
        Self { owner, event, status: 0, parameters: Parameters::None, data: Vec::new(), request: None, group: None }
    }

    /// Replaces the event by one that reports a failure. This is done if a step fails that the library makes for the
    /// program, such as modifying the QP.
    fn fails(&mut self, event: event_type, errno: Errno) {
        (self.event, self.status) = (event, -errno.0);
    }
}

pub(super) fn no_connection() -> rdma_conn_param {
    // SAFETY: the type has only numbers and a nullable pointer, for which zero is valid.
    unsafe { mem::zeroed() }
}

pub(super) fn no_datagram() -> rdma_ud_param {
    // SAFETY: the type has only numbers and a nullable pointer, for which zero is valid.
    unsafe { mem::zeroed() }
}

/// Ends the connections of the identifiers on a device that was removed, and queues the event that reports this.
pub(crate) fn device_removed(device: &Device) {
    let mut world = world();
    super::device::forget(device.as_c());
    for id in world.on_device(device) {
        world.end_stream(id, &[]);
        world.forget_roce(id);
        world.set_deadline(id, None);
        if let Ok(identifier) = world.id(id) {
            (identifier.state, identifier.waiting) = (State::Closed, None);
            identifier.unsent.clear();
        }
        world.close_link(id);
        world.stop_listening(id);
        world.put(Pending::new(id, event_type::RDMA_CM_EVENT_DEVICE_REMOVAL));
    }
}

/// Queues an event on each identifier of a device, which reports that the address of the device has changed.
pub(crate) fn address_changed(device: &Device) {
    let mut world = world();
    for id in world.on_device(device) {
        world.put(Pending::new(id, event_type::RDMA_CM_EVENT_ADDR_CHANGE));
    }
}

/// An event that the program has taken, with the identifier and the group that count it.
pub(super) struct Taken {
    owner: usize,
    group: Option<u64>,
}

/// An event with its private data.
#[repr(C)]
struct Memory {
    event: rdma_cm_event,
    data: [u8; MAX_DATA],
}

/// `rdma_get_cm_event(channel, event)`: blocks until there is an event, unless the descriptor is nonblocking.
///
/// # Safety
///
/// As in C: the channel is alive, and the event is writable.
pub(super) unsafe extern "C" fn get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    return_code(take(channel.addr(), false).map(|taken| unsafe { event.write(taken) }))
}

/// Takes the next event of a channel. If `restarts` is true, signals do not interrupt the call.
pub(super) fn take(channel: usize, restarts: bool) -> Result<*mut rdma_cm_event, Errno> {
    let mut waited = None;
    loop {
        let pending = next(channel, restarts, &mut waited)?;
        if let Some(event) = report(pending) {
            return Ok(event);
        }
    }
}

/// Takes the next event in the queue. `waited` is the queue for which this call has waited.
fn next(
    address: usize,
    restarts: bool,
    waited: &mut Option<Arc<EventFdQueue<Result<Pending, Errno>>>>,
) -> Result<Pending, Errno> {
    loop {
        let events = {
            let mut world = world();
            let found = world.channels.get(&address);
            if let Some(waited) = &*waited
                && !found.is_some_and(|channel| Arc::ptr_eq(&channel.events, waited))
            {
                drop(world);
                return Err(wait_after_destroy());
            }
            if let Some(pending) = world.next(address)? {
                return Ok(pending);
            }
            let gathered = world.gather(address);
            if let Some(pending) = world.next(address)? {
                return Ok(pending);
            }
            gathered?;
            let channel = world.channels.get(&address).ok_or_else(|| unknown(Errno(libc::EBADF)))?;
            Arc::clone(&channel.events)
        };
        if events.is_nonblocking()? {
            return Err(Errno::AGAIN);
        }
        match events.wait(None) {
            Err(Errno(libc::EINTR)) if restarts => {}
            done => done?,
        }
        *waited = Some(events);
    }
}

/// Blocks until a signal arrives. This function is called if another thread has destroyed the channel during the call.
/// A call of the kernel would also wait, because its file stays open. rping relies on this: it exits while one of its
/// threads is in such a call.
#[cold]
fn wait_after_destroy() -> Errno {
    rustix::event::pause();
    Errno(libc::EINTR)
}

impl World {
    /// Returns the identifiers on a device.
    fn on_device(&self, device: &Device) -> Vec<usize> {
        // SAFETY: all identifiers are alive, and so are their contexts, which belong to this provider.
        let is_on_device =
            |id: &&Identifier| unsafe { (*id.c).verbs.as_ref() }.is_some_and(|on| on.device == device.as_c());
        let ids = self.ids.values().filter(|id| id.state != State::Destroyed);
        ids.filter(is_on_device).map(|id| id.c.addr()).collect()
    }

    /// Takes the next event in the queue, and counts it as reported.
    fn next(&mut self, channel: usize) -> Result<Option<Pending>, Errno> {
        let found = self.channels.get_mut(&channel).ok_or_else(|| unknown(Errno(libc::EBADF)))?;
        let Some(pending) = found.take().transpose()? else { return Ok(None) };
        if let Ok(id) = self.id(pending.owner) {
            id.reported += 1;
            if let Some(group) = id.groups.iter_mut().find(|group| Some(group.number) == pending.group) {
                group.reported += 1;
            }
        }
        Ok(Some(pending))
    }

    fn complete(&mut self, owner: usize, group: Option<u64>) {
        if let Ok(id) = self.id(owner) {
            id.completed += 1;
            if let Some(group) = id.groups.iter_mut().find(|found| Some(found.number) == group) {
                group.completed += 1;
            }
        }
    }
}

/// Builds the event for the program. Returns `None` if the event must not be reported.
fn report(mut pending: Pending) -> Option<*mut rdma_cm_event> {
    let owner = pending.owner;
    let Some((id, listen_id)) = process(&mut pending) else {
        world().complete(owner, pending.group);
        ACKNOWLEDGED.notify_all();
        return None;
    };
    let length = pending.data.len().min(MAX_DATA);
    let mut memory = Box::new(Memory {
        // SAFETY: the type has only numbers, nullable pointers and a union of these, for which zero is valid.
        event: unsafe { mem::zeroed() },
        data: [0; MAX_DATA],
    });
    memory.data[..length].copy_from_slice(&pending.data[..length]);
    let memory = Box::into_raw(memory);
    // SAFETY: `memory` is on the heap and not yet shared.
    unsafe {
        let event = &raw mut (*memory).event;
        let data: *const c_void = (&raw const (*memory).data).cast();
        ((*event).id, (*event).listen_id) = (id, listen_id);
        ((*event).event, (*event).status) = (pending.event, pending.status);
        match pending.parameters {
            Parameters::None => {}
            Parameters::Connection(mut parameters) => {
                if length > 0 {
                    // The conversion is lossless, because the length is at most 255.
                    (parameters.private_data, parameters.private_data_len) = (data, length as u8);
                }
                (*event).param.conn = parameters;
            }
            Parameters::Datagram(mut parameters) => {
                if length > 0 {
                    (parameters.private_data, parameters.private_data_len) = (data, length as u8);
                }
                (*event).param.ud = parameters;
            }
        }
        world().events.insert(event.addr(), Taken { owner, group: pending.group });
        Some(event)
    }
}

/// Makes the step of the library that must precede the report of an event, and returns the identifiers of the event. No
/// thread can destroy the owner during this call, because the event is not acknowledged.
fn process(pending: &mut Pending) -> Option<(*mut rdma_cm_id, *mut rdma_cm_id)> {
    let owner = pending.owner;
    let id = world().id(owner).ok()?.c;
    match pending.event {
        event_type::RDMA_CM_EVENT_ADDR_RESOLVED => {
            if let Err(errno) = world().attach(owner) {
                pending.fails(event_type::RDMA_CM_EVENT_ADDR_ERROR, errno);
            }
        }
        event_type::RDMA_CM_EVENT_ROUTE_RESOLVED => world().write_path(owner).ok()?,
        event_type::RDMA_CM_EVENT_CONNECT_REQUEST => {
            let request = pending.request.take()?;
            let made = world().make_requested(owner, request);
            return match made {
                Ok(made) => Some((made, id)),
                Err(errno) => {
                    rdma_mummy_sys::log!(
                        warn,
                        "rejected a connect request: {}",
                        std::io::Error::from_raw_os_error(errno.0)
                    );
                    None
                }
            };
        }
        event_type::RDMA_CM_EVENT_CONNECT_RESPONSE => respond(id, pending),
        event_type::RDMA_CM_EVENT_REJECTED => {
            if world().id(owner).ok()?.failed {
                return None;
            }
            // The connection has already ended, so an error of this call is ignored.
            let _ = transition::to_error(id);
        }
        event_type::RDMA_CM_EVENT_DISCONNECTED if world().id(owner).ok()?.failed => return None,
        event_type::RDMA_CM_EVENT_MULTICAST_JOIN => {
            if let Err(errno) = multicast::joined(id, pending.group) {
                pending.fails(event_type::RDMA_CM_EVENT_MULTICAST_ERROR, errno);
            }
        }
        _ => {}
    }
    Some((id, ptr::null_mut()))
}

/// Connects the QP of an identifier before the event is reported.
fn respond(id: *mut rdma_cm_id, pending: &mut Pending) {
    let fabric = world().id(id.addr()).map_or(Fabric::Host, |id| id.fabric);
    // SAFETY: the identifier is alive, because its event is not acknowledged.
    if fabric != Fabric::Iwarp && unsafe { (*id).qp }.is_null() {
        return;
    }
    pending.event = event_type::RDMA_CM_EVENT_ESTABLISHED;
    let responded = match fabric {
        Fabric::Host | Fabric::Roce => connect::respond(id),
        Fabric::Iwarp => iwarp::respond(id.addr()),
    };
    if let Err(errno) = responded {
        pending.fails(event_type::RDMA_CM_EVENT_CONNECT_ERROR, errno);
        if let Ok(id) = world().id(id.addr()) {
            id.failed = true;
        }
    }
}

/// `rdma_ack_cm_event(event)`.
///
/// # Safety
///
/// As in C: the event came from `rdma_get_cm_event`, and is no longer used.
pub(super) unsafe extern "C" fn ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    return_code(acknowledge(event))
}

pub(super) fn acknowledge(event: *mut rdma_cm_event) -> Result<(), Errno> {
    {
        let mut world = world();
        let Taken { owner, group } = world.events.remove(&event.addr()).ok_or_else(|| unknown(Errno::INVALID))?;
        world.complete(owner, group);
    }
    // SAFETY: the event was taken and not acknowledged, so it is a box made by `report`.
    drop(unsafe { Box::from_raw(event.cast::<Memory>()) });
    ACKNOWLEDGED.notify_all();
    Ok(())
}

/// `rdma_write_cm_event(id, event, status, arg)`: queues an event of the type that programs may use. Other types are
/// refused.
///
/// # Safety
///
/// As in C: the identifier is alive.
pub(super) unsafe extern "C" fn write_cm_event(
    id: *mut rdma_cm_id,
    event: event_type,
    status: c_int,
    arg: u64,
) -> c_int {
    let write = || {
        if event != event_type::RDMA_CM_EVENT_USER {
            return Err(Errno::INVALID);
        }
        let mut world = world();
        world.id(id.addr())?;
        // As in C, the pointer to the private data contains the number.
        let private_data = ptr::without_provenance(usize::try_from(arg).map_err(|_| Errno::INVALID)?);
        let parameters = Parameters::Connection(rdma_conn_param { private_data, ..no_connection() });
        world.put(Pending { status, parameters, ..Pending::new(id.addr(), event) });
        Ok(())
    };
    return_code(write())
}

/// Whether the identifier uses a datagram service.
///
/// # Safety
///
/// The identifier is alive.
pub(super) unsafe fn is_datagram(id: *mut rdma_cm_id) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { (*id).qp_type == ibv_qp_type::IBV_QPT_UD }
}
