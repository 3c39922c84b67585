//! Connecting: the request, its answer, the end.

use std::{ptr, slice};

use libc::{c_int, c_void};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::rdma_cm_event_type as event_type;

use super::attributes::{address_handle, extend, ready_to_receive, ready_to_send, to_error};
use super::calls::{Access, On, answer, on_id};
use super::endpoint::complete;
use super::events::{Pending, acknowledge, is_datagram, queue};
use super::id::State;
use super::peer::{self, Request, carried, reason, room};
use super::raise::ConnectionParameters;

/// The key of all datagram services.
pub(super) const QKEY: u32 = ffi::RDMA_UDP_QKEY;
/// As in C: as much as the device can.
const MOST: u8 = ffi::RDMA_MAX_RESP_RES as u8;
/// How much private data the library has room for.
const ROOM: usize = 255;

pub(super) fn no_parameters() -> ffi::rdma_conn_param {
    ffi::rdma_conn_param {
        private_data: ptr::null(),
        private_data_len: 0,
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: 0,
        retry_count: 0,
        rnr_retry_count: 0,
        srq: 0,
        qp_num: 0,
    }
}

pub(super) fn no_datagram() -> ffi::rdma_ud_param {
    // SAFETY: a struct of integers, and a nullable pointer.
    unsafe { std::mem::zeroed() }
}

/// What a call got, as the library passes it to the kernel.
struct Given {
    parameters: ffi::rdma_conn_param,
    private_data: Vec<u8>,
    null: bool,
}

/// # Safety
///
/// `parameters` is null or can be read, and so can its private data.
unsafe fn read(parameters: *const ffi::rdma_conn_param) -> Given {
    // SAFETY: the caller's promise.
    let Some(&parameters) = (unsafe { parameters.as_ref() }) else {
        let parameters = ffi::rdma_conn_param { retry_count: 7, rnr_retry_count: 7, ..no_parameters() };
        let most = ffi::rdma_conn_param { responder_resources: MOST, initiator_depth: MOST, ..parameters };
        return Given { parameters: most, private_data: Vec::new(), null: true };
    };
    // SAFETY: the caller's promise.
    let private_data = unsafe { bytes(parameters.private_data, parameters.private_data_len.into()) };
    Given { parameters, private_data, null: false }
}

/// # Safety
///
/// `data` is null, or so many bytes can be read there.
unsafe fn bytes(data: *const c_void, length: usize) -> Vec<u8> {
    if data.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(data.cast::<u8>(), length) }.to_vec()
}

fn arguments(given: &Given) -> [(&'static str, u64); 9] {
    let ffi::rdma_conn_param { responder_resources, initiator_depth, flow_control, .. } = given.parameters;
    let ffi::rdma_conn_param { retry_count, rnr_retry_count, srq, qp_num, .. } = given.parameters;
    [
        ("null", given.null.into()),
        ("private_data_len", given.private_data.len() as u64),
        ("responder_resources", responder_resources.into()),
        ("initiator_depth", initiator_depth.into()),
        ("flow_control", flow_control.into()),
        ("retry_count", retry_count.into()),
        ("rnr_retry_count", rnr_retry_count.into()),
        ("srq", srq.into()),
        ("qp_num", qp_num.into()),
    ]
}

/// The number of the queue pair, and whether it receives from a shared queue: those of the identifier if it has one.
fn numbers(on: On, given: &Given) -> (u32, u8) {
    // SAFETY: the identifier is alive, and its queue pair, if there is one.
    match unsafe { (*on.id).qp.as_ref() } {
        Some(qp) => (qp.qp_num, (!qp.srq.is_null()).into()),
        None => (given.parameters.qp_num, given.parameters.srq),
    }
}

/// Checks what the library checks, and gives what the device can: how much it initiates, and how much it answers.
fn check(on: On, given: &Given, verb: &str) -> Result<(u8, u8), c_int> {
    // SAFETY: the identifier is alive.
    let (tcp, qp) = unsafe { ((*on.id).ps == ffi::rdma_port_space::RDMA_PS_TCP, (*on.id).qp) };
    if tcp && qp.is_null() && given.null {
        return Err(libc::EINVAL);
    }
    if !on.with(|id| id.attached)? {
        return on.crash(&format!("{verb} on an identifier without a device"));
    }
    let (initiates, answers) = {
        let attr = on.lock().facts.device.orig_attr;
        (attr.max_qp_init_rd_atom as u8, attr.max_qp_rd_atom as u8)
    };
    let ffi::rdma_conn_param { responder_resources, initiator_depth, .. } = given.parameters;
    let too_many = |asked: u8, most: u8| tcp && asked != MOST && asked > most;
    if too_many(responder_resources, answers) || too_many(initiator_depth, initiates) {
        return Err(libc::EINVAL);
    }
    Ok((initiates, answers))
}

pub(super) unsafe extern "C" fn connect(id: *mut ffi::rdma_cm_id, parameters: *mut ffi::rdma_conn_param) -> c_int {
    // SAFETY: the caller's promise.
    let given = unsafe { read(parameters) };
    answer(on_id("rdma_connect", id, Access::Writes, &arguments(&given), |on| {
        let (initiates, answers) = check(on, &given, "rdma_connect")?;
        let ffi::rdma_conn_param { responder_resources, initiator_depth, .. } = given.parameters;
        let initiator_depth = if initiator_depth == MOST { initiates } else { initiator_depth };
        let responder_resources = if responder_resources == MOST { answers } else { responder_resources };
        let mut private_data = on.with(|id| {
            (id.initiator_depth, id.responder_resources) = (initiator_depth, responder_resources);
            id.connect_data.clone()
        })?;
        private_data.extend_from_slice(&given.private_data);
        if private_data.len() > ROOM {
            return on.crash("rdma_connect with more private data than the library has room for");
        }
        let (qp_num, srq) = numbers(on, &given);
        // What this side initiates is what the other answers.
        let parameters = ffi::rdma_conn_param {
            private_data: ptr::null(),
            initiator_depth: responder_resources,
            responder_resources: initiator_depth,
            qp_num,
            srq,
            ..given.parameters
        };
        ask(on, parameters, &private_data)?;
        on.with(|id| id.connect_data.clear())?;
        complete(on)
    }))
}

/// Sends the request.
fn ask(on: On, parameters: ffi::rdma_conn_param, data: &[u8]) -> Result<(), c_int> {
    let mut inner = on.lock();
    if inner.manager.id(on.id.addr())?.state != State::RouteResolved {
        return Err(libc::EINVAL);
    }
    let datagram = is_datagram(on.id);
    let private_data = carried(data, if datagram { room::DATAGRAM_REQUEST } else { room::REQUEST })?;
    let parameters = match datagram {
        true => ConnectionParameters::Datagram(no_datagram()),
        false => ConnectionParameters::Connection(parameters),
    };
    let identifier = inner.manager.id(on.id.addr())?;
    identifier.state = State::Connecting;
    let (from, to, ece) = (identifier.source, identifier.destination, identifier.local_ece);
    if inner.manager.scripted {
        return Ok(());
    }
    let Some(listener) = peer::listener(&mut inner, on.id.addr()) else {
        peer::nobody(&mut inner, on.id);
        return Ok(());
    };
    let request = Some(Request { peer: on.id.addr(), from, to, ece });
    let kind = event_type::RDMA_CM_EVENT_CONNECT_REQUEST;
    queue(&mut inner, Pending { parameters, private_data, request, ..Pending::of(listener, kind) });
    Ok(())
}

pub(super) unsafe extern "C" fn accept(id: *mut ffi::rdma_cm_id, parameters: *mut ffi::rdma_conn_param) -> c_int {
    // SAFETY: the caller's promise.
    let given = unsafe { read(parameters) };
    answer(on_id("rdma_accept", id, Access::Writes, &arguments(&given), |on| {
        // SAFETY: the identifier is alive.
        if given.null && unsafe { (*on.id).qp }.is_null() {
            return on.crash("rdma_accept without parameters and without a queue pair");
        }
        let (initiates, answers) = check(on, &given, "rdma_accept")?;
        let ffi::rdma_conn_param { responder_resources, initiator_depth, .. } = given.parameters;
        let (depth, resources) = on.with(|id| {
            let depth = if initiator_depth == MOST { id.initiator_depth.min(initiates) } else { initiator_depth };
            let most = responder_resources == MOST;
            let resources = if most { id.responder_resources.min(answers) } else { responder_resources };
            (id.initiator_depth, id.responder_resources) = (depth, resources);
            (depth, resources)
        })?;
        let datagram = is_datagram(on.id);
        if !datagram {
            ready_to_receive(on, Some(resources))?;
            ready_to_send(on, Some(depth))?;
        }
        if let Err(errno) = reply(on, &given) {
            // As in C, what comes of it is of no interest.
            let _ = to_error(on);
            return Err(errno);
        }
        if datagram { acknowledge_own(on) } else { complete(on) }
    }))
}

/// Sends the answer.
fn reply(on: On, given: &Given) -> Result<(), c_int> {
    let datagram = is_datagram(on.id);
    let private_data = carried(&given.private_data, if datagram { room::DATAGRAM_REPLY } else { room::REPLY })?;
    let (qp_num, srq) = numbers(on, given);
    let mut inner = on.lock();
    let identifier = inner.manager.id(on.id.addr())?;
    if identifier.state != State::Requested {
        return Err(libc::EINVAL);
    }
    identifier.state = if datagram { State::Connected } else { State::Accepted };
    let (peer, ece) = (identifier.peer, identifier.local_ece);
    let (initiator_depth, responder_resources) = (identifier.initiator_depth, identifier.responder_resources);
    let source = identifier.source;
    let Some(peer) = peer.and_then(|peer| inner.manager.id(peer).ok()) else { return Ok(()) };
    peer.state = if datagram { State::Connected } else { State::Responded };
    (peer.remote_qp, peer.remote_ece) = (qp_num, ece);
    let peer = peer.c;
    let (kind, parameters) = if datagram {
        let ah_attr = address_handle(source);
        let parameters = ffi::rdma_ud_param { ah_attr, qp_num, qkey: QKEY, ..no_datagram() };
        (event_type::RDMA_CM_EVENT_ESTABLISHED, ConnectionParameters::Datagram(parameters))
    } else {
        let parameters = ffi::rdma_conn_param {
            private_data: ptr::null(),
            initiator_depth: responder_resources,
            responder_resources: initiator_depth,
            retry_count: 0,
            qp_num,
            srq,
            ..given.parameters
        };
        (event_type::RDMA_CM_EVENT_CONNECT_RESPONSE, ConnectionParameters::Connection(parameters))
    };
    queue(&mut inner, Pending { parameters, private_data, ..Pending::of(peer, kind) });
    Ok(())
}

/// Acknowledges the event that the identifier holds.
fn acknowledge_own(on: On) -> Result<(), c_int> {
    // SAFETY: the identifier is alive, and its event is null or one that it holds.
    let event = unsafe { std::mem::replace(&mut (*on.id).event, ptr::null_mut()) };
    if event.is_null() { Ok(()) } else { acknowledge(on.device, event) }
}

pub(super) unsafe extern "C" fn establish(id: *mut ffi::rdma_cm_id) -> c_int {
    answer(on_id("rdma_establish", id, Access::Reads, &[], |on| {
        // SAFETY: the identifier is alive.
        if !unsafe { (*on.id).qp }.is_null() {
            return Err(libc::EINVAL);
        }
        respond(on)
    }))
}

/// Answers the answer, with the queue pair if the identifier has one.
pub(super) fn respond(on: On) -> Result<(), c_int> {
    // SAFETY: the identifier is alive.
    let qp = unsafe { (*on.id).qp };
    let extended = if qp.is_null() { Ok(()) } else { extend(on, qp) };
    let result = extended
        .and_then(|()| ready_to_receive(on, None))
        .and_then(|()| ready_to_send(on, None))
        .and_then(|()| ready(on));
    if result.is_err() {
        // As in C, what comes of it is of no interest.
        let _ = to_error(on);
    }
    result
}

fn ready(on: On) -> Result<(), c_int> {
    let mut inner = on.lock();
    let scripted = inner.manager.scripted;
    let identifier = inner.manager.id(on.id.addr())?;
    let expected = identifier.state == State::Responded || scripted && identifier.state == State::Connecting;
    if !expected {
        return Err(libc::EINVAL);
    }
    identifier.state = State::Connected;
    if let Some(peer) = identifier.peer {
        established(&mut inner, peer);
    }
    Ok(())
}

/// The side that accepted hears that the other is ready.
fn established(inner: &mut crate::recording::state::Inner, id: usize) {
    let Ok(identifier) = inner.manager.id(id) else { return };
    if identifier.state == State::Accepted {
        identifier.state = State::Connected;
        let c = identifier.c;
        let parameters = ConnectionParameters::Connection(no_parameters());
        queue(inner, Pending { parameters, ..Pending::of(c, event_type::RDMA_CM_EVENT_ESTABLISHED) });
    }
}

pub(super) unsafe extern "C" fn reject(id: *mut ffi::rdma_cm_id, data: *const c_void, length: u8) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { reject_for("rdma_reject", reason::CONSUMER_DEFINED, id, data, length) }
}

pub(super) unsafe extern "C" fn reject_ece(id: *mut ffi::rdma_cm_id, data: *const c_void, length: u8) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { reject_for("rdma_reject_ece", reason::VENDOR_OPTION, id, data, length) }
}

/// # Safety
///
/// `data` is null, or so many bytes can be read there.
unsafe fn reject_for(
    verb: &'static str,
    reason: c_int,
    id: *mut ffi::rdma_cm_id,
    data: *const c_void,
    length: u8,
) -> c_int {
    // SAFETY: the caller's promise.
    let data = unsafe { bytes(data, length.into()) };
    answer(on_id(verb, id, Access::Reads, &[("private_data_len", length.into())], |on| {
        carried(&data, if is_datagram(on.id) { room::DATAGRAM_REPLY } else { room::REJECT })?;
        let mut inner = on.lock();
        let identifier = inner.manager.id(on.id.addr())?;
        if !matches!(identifier.state, State::Requested | State::Responded) {
            return Err(libc::EINVAL);
        }
        identifier.state = State::Over;
        if let Some(peer) = identifier.peer {
            peer::reject(&mut inner, peer, reason, &data);
        }
        Ok(())
    }))
}

pub(super) unsafe extern "C" fn disconnect(id: *mut ffi::rdma_cm_id) -> c_int {
    answer(on_id("rdma_disconnect", id, Access::Reads, &[], |on| {
        // SAFETY: the identifier is alive.
        if unsafe { (*on.id).verbs }.is_null() {
            return Err(libc::EINVAL);
        }
        to_error(on)?;
        {
            let mut inner = on.lock();
            let state = inner.manager.id(on.id.addr())?.state;
            let sent = [State::Idle, State::Bound, State::AddressResolved, State::RouteResolved, State::Listening];
            if sent.contains(&state) {
                return Err(libc::EINVAL);
            }
            if !is_datagram(on.id) {
                peer::part(&mut inner, on.id.addr());
            }
        }
        complete(on)
    }))
}

/// The program has seen a queue pair receive before the event that says it can.
pub(super) unsafe extern "C" fn notify(id: *mut ffi::rdma_cm_id, what: ffi::ibv_event_type) -> c_int {
    answer(on_id("rdma_notify", id, Access::Reads, &[("event", what.0.into())], |on| {
        let mut inner = on.lock();
        match (what, inner.manager.id(on.id.addr())?.state) {
            (ffi::ibv_event_type::IBV_EVENT_COMM_EST, State::Accepted) => {
                established(&mut inner, on.id.addr());
                Ok(())
            }
            (ffi::ibv_event_type::IBV_EVENT_COMM_EST, State::Connected) => Err(libc::EISCONN),
            _ => Err(libc::EINVAL),
        }
    }))
}
