//! Events: what waits, taking it with what librdmacm does then, acknowledging it.

use std::ptr;
use std::time::Instant;

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::{ibv_qp_type as pair_type, rdma_cm_event_type as event_type};

use super::address::{attach, write_addresses};
use super::attributes::{path, to_error};
use super::calls::{Access, On, answer, begin, belongs, device_of, end, on_device, on_id};
use super::connect::respond;
use super::id::{PATIENCE, State};
use super::memory::{EventMemory, overwrite};
use super::peer::{self, Request};
use super::raise::ConnectionParameters;
use super::{id, multicast};
use crate::recording::calls::Kind;
use crate::recording::failure::set_errno;
use crate::recording::objects::forever;
use crate::recording::state::{Device, Inner};

/// An event that nobody has taken yet.
pub(super) struct Pending {
    /// The address of the identifier that it is counted on.
    pub(super) owner: usize,
    pub(super) id: *mut ffi::rdma_cm_id,
    pub(super) listen_id: *mut ffi::rdma_cm_id,
    pub(super) event: event_type,
    pub(super) status: c_int,
    pub(super) parameters: ConnectionParameters,
    pub(super) private_data: Vec<u8>,
    /// Whether the library does with it what belongs to its type.
    pub(super) processed: bool,
    pub(super) request: Option<Request>,
    /// The multicast group of the identifier.
    pub(super) group: Option<usize>,
}

impl Pending {
    pub(super) fn of(id: *mut ffi::rdma_cm_id, event: event_type) -> Self {
        Self {
            owner: id.addr(),
            id,
            listen_id: ptr::null_mut(),
            event,
            status: 0,
            parameters: ConnectionParameters::None,
            private_data: Vec::new(),
            processed: true,
            request: None,
            group: None,
        }
    }
}

/// An event that was taken.
pub(super) struct Taken {
    /// The address of the identifier that it is counted on, if there is one.
    owner: usize,
    group: Option<usize>,
}

/// Adds what came of a call or of the other side, unless the test says what comes.
pub(super) fn queue(inner: &mut Inner, pending: Pending) {
    if inner.manager.scripted {
        return;
    }
    let Ok(channel) = inner.manager.id(pending.owner).map(|id| id.channel) else { return };
    if let Some(channel) = inner.manager.channels.get_mut(&channel) {
        channel.put(pending);
    }
}

pub(super) unsafe extern "C" fn get_cm_event(
    channel: *mut ffi::rdma_event_channel,
    event: *mut *mut ffi::rdma_cm_event,
) -> c_int {
    let Some(device) = device_of(channel) else { return answer(Err(libc::EINVAL)) };
    let arguments = [("channel", channel.addr() as u64)];
    let taken = on_device(device, "rdma_get_cm_event", &arguments, || take(device, channel.addr(), false));
    // SAFETY: it can be written to by contract.
    answer(taken.map(|taken| unsafe { *event = taken }))
}

/// Takes the next event, and waits for one where that is what the channel does.
pub(super) fn take(device: &'static Device, channel: usize, waits: bool) -> Result<*mut ffi::rdma_cm_event, c_int> {
    loop {
        let pending = next(device, channel, waits)?;
        if let Some(event) = report(device, pending) {
            return Ok(event);
        }
    }
}

fn next(device: &'static Device, channel: usize, waits: bool) -> Result<Pending, c_int> {
    device.state.acknowledged.notify_all();
    let until = Instant::now() + PATIENCE;
    let mut inner = device.state.lock();
    loop {
        if !inner.is_live(Kind::EventChannel, channel, "rdma_get_cm_event") {
            return Err(libc::EBADF);
        }
        let found = inner.manager.channels.get_mut(&channel).ok_or(libc::EBADF)?;
        let fd = found.fd;
        if let Some(pending) = found.take() {
            if let Ok(id) = inner.manager.id(pending.owner) {
                id.reported += 1;
                let group = id.groups.iter_mut().find(|group| Some(group.number) == pending.group);
                let is_forgotten = group.is_none() && pending.group.is_some();
                if let Some(group) = group {
                    group.reported += 1;
                }
                if is_forgotten {
                    inner.violation("an event was taken of a group that the library has freed");
                }
            }
            return Ok(pending);
        }
        if !waits && !blocks(fd) {
            return Err(libc::EAGAIN);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            inner.violation("an event was waited for that never came");
            return Err(libc::ETIMEDOUT);
        }
        let waited = device.state.acknowledged.wait_timeout(inner, left);
        inner = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
    }
}

/// Whether the descriptor is in blocking mode. Under Miri it never is.
fn blocks(fd: c_int) -> bool {
    // SAFETY: takes plain numbers.
    !cfg!(miri) && unsafe { libc::fcntl(fd, libc::F_GETFL) } & libc::O_NONBLOCK == 0
}

/// Makes the event that the program gets; `None` for one that it does not.
fn report(device: &'static Device, mut pending: Pending) -> Option<*mut ffi::rdma_cm_event> {
    let owner = pending.owner;
    let group = pending.group;
    if pending.processed && process(device, &mut pending).is_err() {
        complete(&mut device.state.lock(), owner, group);
        return None;
    }
    let memory = forever::<EventMemory>();
    let event = memory.cast::<ffi::rdma_cm_event>();
    // SAFETY: the event is new, and has room for so much private data.
    unsafe {
        (*event).id = pending.id;
        (*event).listen_id = pending.listen_id;
        (*event).event = pending.event;
        (*event).status = pending.status;
        let length = pending.private_data.len().min(255);
        let data = (&raw mut (*memory).private_data).cast::<u8>();
        data.copy_from_nonoverlapping(pending.private_data.as_ptr(), length);
        let data = data.cast_const().cast::<libc::c_void>();
        match &mut pending.parameters {
            ConnectionParameters::None => {}
            ConnectionParameters::Connection(parameters) => {
                if length > 0 {
                    (parameters.private_data, parameters.private_data_len) = (data, length as u8);
                }
                (*event).param.conn = *parameters;
            }
            ConnectionParameters::Datagram(parameters) => {
                if length > 0 {
                    (parameters.private_data, parameters.private_data_len) = (data, length as u8);
                }
                (*event).param.ud = *parameters;
            }
        }
    }
    belongs(event, device);
    let mut inner = device.state.lock();
    // SAFETY: the event is new, and these are its numbers.
    unsafe { spoil(&mut inner, event, &pending.parameters) };
    inner.made(Kind::ConnectionEvent, event, &[]);
    inner.manager.events.insert(event.addr(), Taken { owner, group });
    Some(event)
}

/// The numbers of an event are outputs.
///
/// # Safety
///
/// The event is new, and has the parameters.
unsafe fn spoil(inner: &mut Inner, event: *mut ffi::rdma_cm_event, parameters: &ConnectionParameters) {
    // SAFETY: the caller's promise.
    unsafe {
        // That of a request says that there is an identifier to own.
        if (*event).listen_id.is_null() {
            inner.tag("rdma_get_cm_event: type", &raw mut (*event).event);
        }
        inner.output("rdma_get_cm_event: status", &raw mut (*event).status);
        match parameters {
            ConnectionParameters::None => {}
            ConnectionParameters::Connection(_) => {
                let conn = &raw mut (*event).param.conn;
                if (*conn).private_data.is_null() {
                    inner.output("rdma_get_cm_event: length of no data", &raw mut (*conn).private_data_len);
                }
                inner.output("rdma_get_cm_event: depths", &raw mut (*conn).responder_resources);
                inner.output("rdma_get_cm_event: depths", &raw mut (*conn).initiator_depth);
                inner.output("rdma_get_cm_event: flow control", &raw mut (*conn).flow_control);
                inner.output("rdma_get_cm_event: retries", &raw mut (*conn).retry_count);
                inner.output("rdma_get_cm_event: retries", &raw mut (*conn).rnr_retry_count);
                inner.output("rdma_get_cm_event: srq", &raw mut (*conn).srq);
                inner.output("rdma_get_cm_event: number", &raw mut (*conn).qp_num);
            }
            ConnectionParameters::Datagram(_) => {
                let ud = &raw mut (*event).param.ud;
                if (*ud).private_data.is_null() {
                    inner.output("rdma_get_cm_event: length of no data", &raw mut (*ud).private_data_len);
                }
                inner.output("rdma_get_cm_event: way", &raw mut (*ud).ah_attr);
                inner.output("rdma_get_cm_event: number", &raw mut (*ud).qp_num);
                inner.output("rdma_get_cm_event: qkey", &raw mut (*ud).qkey);
            }
        }
    }
}

/// What the library does with an event before the program sees it; an error where the program never does.
fn process(device: &'static Device, pending: &mut Pending) -> Result<(), c_int> {
    let on = On { device, id: pending.id };
    let access = match pending.event {
        event_type::RDMA_CM_EVENT_ADDR_RESOLVED
        | event_type::RDMA_CM_EVENT_ROUTE_RESOLVED
        | event_type::RDMA_CM_EVENT_CONNECT_RESPONSE => Access::Writes,
        _ => Access::Reads,
    };
    begin(&mut on.lock(), pending.owner, "rdma_get_cm_event", access)?;
    // Gives another thread the chance to do what it must not.
    std::thread::yield_now();
    let result = process_on(on, pending);
    end(&mut on.lock(), pending.owner, access);
    result
}

fn process_on(on: On, pending: &mut Pending) -> Result<(), c_int> {
    match pending.event {
        event_type::RDMA_CM_EVENT_ADDR_RESOLVED => resolved(on, pending),
        event_type::RDMA_CM_EVENT_ROUTE_RESOLVED => path(on),
        event_type::RDMA_CM_EVENT_CONNECT_REQUEST => requested(on, pending)?,
        event_type::RDMA_CM_EVENT_CONNECT_RESPONSE => responded(on, pending)?,
        event_type::RDMA_CM_EVENT_REJECTED => {
            if on.with(|id| id.connect_error)? {
                return Err(libc::EAGAIN);
            }
            // As in C, what comes of it is of no interest.
            let _ = to_error(on);
        }
        event_type::RDMA_CM_EVENT_DISCONNECTED if on.with(|id| id.connect_error)? => return Err(libc::EAGAIN),
        event_type::RDMA_CM_EVENT_MULTICAST_JOIN => {
            if let Err(errno) = multicast::joined(on, pending) {
                fails(pending, event_type::RDMA_CM_EVENT_MULTICAST_ERROR, errno);
            }
        }
        _ => {}
    }
    Ok(())
}

/// The identifier gets its device with the event, and not before.
fn resolved(on: On, pending: &mut Pending) {
    if let Err(errno) = attach(on).and_then(|()| write_addresses(on)) {
        fails(pending, event_type::RDMA_CM_EVENT_ADDR_ERROR, errno);
    }
}

/// A step of the library's own has failed: the event says no more than that, and errno is what is left of it.
fn fails(pending: &mut Pending, event: event_type, errno: c_int) {
    (pending.event, pending.status) = (event, -1);
    set_errno(errno);
}

/// An identifier with a queue pair is connected before the program hears of it.
fn responded(on: On, pending: &mut Pending) -> Result<(), c_int> {
    // SAFETY: the identifier is alive.
    if unsafe { (*on.id).qp }.is_null() {
        return Ok(());
    }
    pending.event = event_type::RDMA_CM_EVENT_ESTABLISHED;
    if let Err(errno) = respond(on) {
        fails(pending, event_type::RDMA_CM_EVENT_CONNECT_ERROR, errno);
        on.with(|id| id.connect_error = true)?;
    }
    Ok(())
}

/// A request makes an identifier of its own.
fn requested(listener: On, pending: &mut Pending) -> Result<(), c_int> {
    let device = listener.device;
    let mut inner = listener.lock();
    let sync = inner.manager.id(listener.id.addr())?.sync;
    let c = listener.id;
    // SAFETY: the listener is alive.
    let (channel, context, kind) = unsafe { ((*c).channel, (*c).context, ((*c).ps, (*c).qp_type)) };
    let made = id::make(device, &mut inner, (!sync).then_some(channel), context, kind);
    let on = On { device, id: made };
    if let Some(request) = pending.request.take() {
        peer::arrived(&mut inner, made.addr(), &request);
    }
    if let ConnectionParameters::Connection(parameters) = pending.parameters {
        let identifier = inner.manager.id(made.addr())?;
        identifier.initiator_depth = parameters.initiator_depth;
        identifier.responder_resources = parameters.responder_resources;
        identifier.remote_qp = parameters.qp_num;
    }
    inner.manager.id(made.addr())?.state = State::Requested;
    drop(inner);
    if let Err(errno) = attach(on).and_then(|()| write_addresses(on)) {
        id::destroy(on)?;
        return Err(errno);
    }
    path(on);
    (pending.id, pending.listen_id) = (made, listener.id);
    Ok(())
}

/// Counts an event as acknowledged.
fn complete(inner: &mut Inner, owner: usize, group: Option<usize>) {
    if let Ok(id) = inner.manager.id(owner) {
        id.completed += 1;
        if let Some(group) = id.groups.iter_mut().find(|found| Some(found.number) == group) {
            group.completed += 1;
        }
    }
}

pub(super) unsafe extern "C" fn ack_cm_event(event: *mut ffi::rdma_cm_event) -> c_int {
    let Some(device) = device_of(event) else { return answer(Err(libc::EINVAL)) };
    let arguments = [("event", event.addr() as u64)];
    // It fails for events that are not there alone, and so not as the test says.
    drop(device.state.note("rdma_ack_cm_event", &arguments));
    answer(acknowledge(device, event))
}

pub(super) fn acknowledge(device: &'static Device, event: *mut ffi::rdma_cm_event) -> Result<(), c_int> {
    let mut inner = device.state.lock();
    let Some(Taken { owner, group }) = inner.manager.events.remove(&event.addr()) else {
        inner.violation("an event was acknowledged that is not there");
        return Err(libc::EINVAL);
    };
    // It was made when it was taken.
    let _ = inner.destroy(Kind::ConnectionEvent, event.addr());
    // SAFETY: the event is gone, and nobody uses it any more.
    unsafe { overwrite(event.cast::<EventMemory>()) };
    complete(&mut inner, owner, group);
    drop(inner);
    device.state.acknowledged.notify_all();
    Ok(())
}

/// A program's own event; no other type can be written.
pub(super) unsafe extern "C" fn write_cm_event(
    id: *mut ffi::rdma_cm_id,
    event: event_type,
    status: c_int,
    argument: u64,
) -> c_int {
    let arguments = [("event", event.0.into()), ("status", status as u64), ("argument", argument)];
    answer(on_id("rdma_write_cm_event", id, Access::Reads, &arguments, |on| {
        if event != event_type::RDMA_CM_EVENT_USER {
            return Err(libc::EINVAL);
        }
        let mut pending = Pending { status, ..Pending::of(on.id, event) };
        // The number stands where the pointer to private data does.
        let mut parameters = super::connect::no_parameters();
        parameters.private_data = ptr::without_provenance(argument as usize);
        pending.parameters = ConnectionParameters::Connection(parameters);
        queue(&mut on.lock(), pending);
        Ok(())
    }))
}

/// Whether the identifier is of datagrams.
pub(super) fn is_datagram(id: *mut ffi::rdma_cm_id) -> bool {
    // SAFETY: identifiers are never freed, and their types never changed.
    unsafe { (*id).qp_type == pair_type::IBV_QPT_UD }
}
