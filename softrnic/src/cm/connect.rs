//! Connecting: the request, its answer, the answer to that, and the end.

use std::ffi::{c_int, c_void};
use std::mem;
use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_mummy_sys::{RDMA_MAX_INIT_DEPTH, ibv_event_type, rdma_cm_id, rdma_conn_param, rdma_port_space};

use super::calls::{answer, bytes};
use super::channel::Source;
use super::endpoint::complete;
use super::events::{acknowledge, is_datagram, no_connection};
use super::id::{Identifier, State};
use super::messages::{Kind, Message};
use super::peer::{PATIENCE, QKEY, Reason};
use super::port::{self, Found};
use super::transition::{extend, ready_to_receive, ready_to_send, to_error};
use super::{World, world};
use crate::sys::errno::Errno;
use crate::wire::limits::MAX_RD_ATOMIC;
use crate::wire::packet::MAX_NUMBER;

/// As in C: as much as the device can.
const MOST: u8 = RDMA_MAX_INIT_DEPTH as u8;
/// What the device can.
const DEVICE: u8 = MAX_RD_ATOMIC as u8;
/// For so long a port where nobody listens is asked again.
const GRACE: Duration = Duration::from_millis(100);
/// And for so long one that somebody listened on with whom this process is still connected.
const GRACE_OF_PEERS: Duration = Duration::from_secs(4);
/// How soon one who found no room asks again.
const AGAIN: Duration = Duration::from_millis(20);

/// What a call got.
struct Given {
    parameters: rdma_conn_param,
    data: Vec<u8>,
    null: bool,
}

/// # Safety
///
/// The parameters are null or can be read, and so can their private data.
unsafe fn read(parameters: *const rdma_conn_param) -> Given {
    // SAFETY: the caller's promise.
    match unsafe { parameters.as_ref() } {
        None => {
            let most = rdma_conn_param { responder_resources: MOST, initiator_depth: MOST, ..no_connection() };
            let parameters = rdma_conn_param { retry_count: 7, rnr_retry_count: 7, ..most };
            Given { parameters, data: Vec::new(), null: true }
        }
        Some(&parameters) => {
            // SAFETY: the caller's promise.
            let data = unsafe { bytes(parameters.private_data, parameters.private_data_len.into()) };
            Given { parameters, data, null: false }
        }
    }
}

impl Given {
    /// Checks what can be known without the other side.
    ///
    /// # Safety
    ///
    /// The identifier is alive.
    unsafe fn check(&self, id: *mut rdma_cm_id) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        let (tcp, qp, verbs) = unsafe { ((*id).ps == rdma_port_space::RDMA_PS_TCP, (*id).qp, (*id).verbs) };
        let too_many = |asked: u8| tcp && asked != MOST && asked > DEVICE;
        let is_missing = qp.is_null() && self.null;
        if is_missing || verbs.is_null() {
            return Err(Errno::INVALID);
        }
        if too_many(self.parameters.responder_resources) || too_many(self.parameters.initiator_depth) {
            return Err(Errno::INVALID);
        }
        Ok(())
    }

    /// The number of the queue pair, and whether it receives from a shared queue: those of the identifier's, if it has one.
    ///
    /// # Safety
    ///
    /// The identifier is alive, and its queue pair if it has one.
    unsafe fn numbers(&self, id: *mut rdma_cm_id) -> (u32, u8) {
        // SAFETY: the caller's promise.
        match unsafe { (*id).qp.as_ref() } {
            Some(qp) => (qp.qp_num, (!qp.srq.is_null()).into()),
            None => (self.parameters.qp_num & MAX_NUMBER, self.parameters.srq),
        }
    }

    /// A packet with what was given.
    ///
    /// # Safety
    ///
    /// As for [`numbers`](Self::numbers).
    unsafe fn message(&self, kind: Kind, id: *mut rdma_cm_id, data: &[u8]) -> Result<Message, Errno> {
        // SAFETY: the caller's promise.
        let (qp_number, srq) = unsafe { self.numbers(id) };
        let message = Message {
            qp_number,
            srq,
            qkey: QKEY,
            flow_control: self.parameters.flow_control,
            retry_count: self.parameters.retry_count & 7,
            rnr_retry_count: self.parameters.rnr_retry_count & 7,
            ..Message::new(kind)
        };
        message.with_data(data).ok_or(Errno::INVALID)
    }
}

/// `rdma_connect(id, conn_param)`.
///
/// # Safety
///
/// As for C: the identifier is alive, and the parameters null or readable, with their private data.
pub(super) unsafe extern "C" fn connect(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int {
    let connect = || {
        // SAFETY: the caller's promise.
        let (given, datagram) = unsafe { (read(conn_param), is_datagram(id)) };
        let data = [world().id(id.addr())?.connect_data.clone(), given.data.clone()].concat();
        let kind = if datagram { Kind::DatagramRequest } else { Kind::Request };
        // SAFETY: the caller's promise.
        let mut message = unsafe {
            given.check(id)?;
            given.message(kind, id, &data)?
        };
        let clamp = |asked: u8| if asked == MOST { DEVICE } else { asked };
        {
            let mut world = world();
            let identifier = world.id(id.addr())?;
            let (from, to) = (identifier.source, identifier.destination);
            let (Some(from), Some(to), State::RouteResolved) = (from, to, identifier.state) else {
                return Err(Errno::INVALID);
            };
            identifier.initiator_depth = clamp(given.parameters.initiator_depth);
            identifier.responder_resources = clamp(given.parameters.responder_resources);
            identifier.retry_count = message.retry_count;
            message.initiator_depth = identifier.initiator_depth;
            message.responder_resources = identifier.responder_resources;
            (message.from, message.to, message.psn) = (from, to, identifier.psn);
            message.ece = (identifier.local_ece.vendor_id, identifier.local_ece.options);
            message.traffic_class = identifier.options.traffic_class;
            identifier.connect_data.clear();
            identifier.state = State::Connecting;
            if let Err(errno) = world.ask(id.addr(), message, Instant::now() + PATIENCE) {
                world.id(id.addr())?.state = State::RouteResolved;
                return Err(errno);
            }
        }
        complete(id)
    };
    answer(connect())
}

impl World {
    /// Sends a request, or leaves it for later where there is no room for it.
    fn ask(&mut self, id: usize, message: Message, until: Instant) -> Result<(), Errno> {
        let identifier = self.id(id)?;
        // SAFETY: the identifier is alive.
        let (space, datagram) = unsafe { ((*identifier.c).ps, is_datagram(identifier.c)) };
        let own = identifier.port.as_ref().filter(|port| Arc::strong_count(port) == 1);
        let socket = match own {
            // The socket that has the name of the port need not be alone.
            Some(port) => Arc::clone(&port.socket),
            None => Arc::new(port::socket()?),
        };
        match port::connect(&*socket, space, message.to.ip(), message.to.port())? {
            Found::Listener => {
                let watched = self.watch(id, socket, Source::Link(id))?;
                self.id(id)?.link = Some(watched);
                self.say(id, &message);
                self.set_deadline(id, Some(until));
            }
            Found::Full => self.later(id, message, until)?,
            // Programs listen anew between two connections, and count on the time that a network takes.
            Found::Nobody if Instant::now() + PATIENCE < until + self.grace(message.to) => {
                self.later(id, message, until)?;
            }
            Found::Nobody => {
                let reason = if datagram { Reason::DATAGRAM_UNSUPPORTED } else { Reason::INVALID_SERVICE_ID };
                self.rejected(
                    id,
                    reason.0.into(),
                    Message::new(if datagram { Kind::DatagramReply } else { Kind::Reject }).data,
                );
            }
        }
        Ok(())
    }

    /// For how long a port where nobody listens is asked again. A peer that goes on listens anew when it has its turn, which on a busy
    /// machine takes its time, and in the port space that its next connection is of; some programs (perftest's) do not bear a rejection.
    fn grace(&self, to: SocketAddr) -> Duration {
        let is_peer = |id: &Identifier| id.state == State::Connected && id.destination == Some(to);
        if self.ids.values().any(is_peer) { GRACE_OF_PEERS } else { GRACE }
    }

    /// Leaves a request for the next attempt.
    fn later(&mut self, id: usize, message: Message, until: Instant) -> Result<(), Errno> {
        self.id(id)?.waiting = Some((message, until));
        self.set_deadline(id, Some(Instant::now() + AGAIN));
        Ok(())
    }

    /// Tries once more what there was no room for.
    pub(super) fn ask_again(&mut self, id: usize, message: Message, until: Instant) {
        if let Err(errno) = self.ask(id, message, until) {
            self.rejected(id, -errno.0, Vec::new());
        }
    }
}

/// `rdma_accept(id, conn_param)`.
///
/// # Safety
///
/// As for C: the identifier is alive, and the parameters null or readable, with their private data.
pub(super) unsafe extern "C" fn accept(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int {
    let accept = || {
        // SAFETY: the caller's promise.
        let (given, datagram) = unsafe { (read(conn_param), is_datagram(id)) };
        let kind = if datagram { Kind::DatagramReply } else { Kind::Reply };
        // SAFETY: the caller's promise.
        let message = unsafe {
            given.check(id)?;
            given.message(kind, id, &given.data)?
        };
        {
            let mut world = world();
            let identifier = world.id(id.addr())?;
            if identifier.state != State::Requested {
                return Err(Errno::INVALID);
            }
            let clamp = |asked: u8, offered: u8| if asked == MOST { offered.min(DEVICE) } else { asked };
            identifier.initiator_depth = clamp(given.parameters.initiator_depth, identifier.initiator_depth);
            identifier.responder_resources =
                clamp(given.parameters.responder_resources, identifier.responder_resources);
        }
        if !datagram {
            ready_to_receive(id)?;
            ready_to_send(id)?;
        }
        if let Err(errno) = reply(id, message, datagram) {
            // What comes of it is of no interest.
            let _ = to_error(id);
            return Err(errno);
        }
        if datagram { acknowledge_own(id) } else { complete(id) }
    };
    answer(accept())
}

/// Sends the answer.
fn reply(id: *mut rdma_cm_id, mut message: Message, datagram: bool) -> Result<(), Errno> {
    let mut world = world();
    let identifier = world.id(id.addr())?;
    if identifier.state != State::Requested {
        return Err(Errno::INVALID);
    }
    (message.initiator_depth, message.responder_resources) =
        (identifier.initiator_depth, identifier.responder_resources);
    message.psn = identifier.psn;
    message.ece = (identifier.local_ece.vendor_id, identifier.local_ece.options);
    identifier.state = if datagram { State::Connected } else { State::Accepted };
    world.say(id.addr(), &message);
    if datagram {
        world.hang_up(id.addr());
    } else {
        world.be_patient(id.addr());
    }
    Ok(())
}

/// Acknowledges the event that the identifier holds.
fn acknowledge_own(id: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: the identifier is alive, and its event is null or one that it holds.
    let event = unsafe { mem::replace(&mut (*id).event, ptr::null_mut()) };
    if event.is_null() { Ok(()) } else { acknowledge(event) }
}

/// `rdma_establish(id)`: of identifiers without a queue pair.
///
/// # Safety
///
/// As for C: the identifier is alive.
pub(super) unsafe extern "C" fn establish(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's promise.
    if !unsafe { (*id).qp }.is_null() {
        return answer(Err(Errno::INVALID));
    }
    answer(respond(id))
}

/// Answers the answer, with the queue pair if the identifier has one, which is alive.
pub(super) fn respond(id: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: the identifier is alive.
    let qp = unsafe { (*id).qp };
    let extended = if qp.is_null() { Ok(()) } else { extend(id, qp) };
    let ready =
        extended.and_then(|()| ready_to_receive(id)).and_then(|()| ready_to_send(id)).and_then(|()| ready(id.addr()));
    if ready.is_err() {
        // What comes of it is of no interest.
        let _ = to_error(id);
    }
    ready
}

fn ready(id: usize) -> Result<(), Errno> {
    let mut world = world();
    let identifier = world.id(id)?;
    if identifier.state != State::Responded {
        return Err(Errno::INVALID);
    }
    identifier.state = State::Connected;
    world.say(id, &Message::new(Kind::ReadyToUse));
    Ok(())
}

/// `rdma_reject(id, private_data, private_data_len)`.
///
/// # Safety
///
/// As for C: the identifier is alive, and so many bytes can be read.
pub(super) unsafe extern "C" fn reject(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int {
    // SAFETY: the caller's promise.
    answer(unsafe { say_no(id, Reason::CONSUMER_DEFINED, data, length) })
}

/// `rdma_reject_ece(id, private_data, private_data_len)`.
///
/// # Safety
///
/// As for C: the identifier is alive, and so many bytes can be read.
pub(super) unsafe extern "C" fn reject_ece(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int {
    // SAFETY: the caller's promise.
    answer(unsafe { say_no(id, Reason::VENDOR_OPTION, data, length) })
}

/// # Safety
///
/// The identifier is alive, and so many bytes can be read.
unsafe fn say_no(id: *mut rdma_cm_id, reason: Reason, data: *const c_void, length: u8) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let (data, datagram) = unsafe { (bytes(data, length.into()), is_datagram(id)) };
    let (kind, reason) = match datagram {
        true => (Kind::DatagramReply, Reason::DATAGRAM_REJECTED),
        false => (Kind::Reject, reason),
    };
    let message = Message { reason: reason.0, ..Message::new(kind) };
    let message = message.with_data(&data).ok_or(Errno::INVALID)?;
    let mut world = world();
    let identifier = world.id(id.addr())?;
    if !matches!(identifier.state, State::Requested | State::Responded) {
        return Err(Errno::INVALID);
    }
    identifier.state = State::Over;
    world.set_deadline(id.addr(), None);
    world.say(id.addr(), &message);
    world.hang_up(id.addr());
    Ok(())
}

/// `rdma_disconnect(id)`.
///
/// # Safety
///
/// As for C: the identifier is alive, and so is its queue pair.
pub(super) unsafe extern "C" fn disconnect(id: *mut rdma_cm_id) -> c_int {
    let disconnect = || {
        // SAFETY: the caller's promise.
        let (verbs, datagram) = unsafe { ((*id).verbs, is_datagram(id)) };
        let state = world().id(id.addr())?.state;
        let early = [State::Idle, State::Bound, State::AddressResolved, State::RouteResolved, State::Listening];
        if verbs.is_null() || early.contains(&state) {
            return Err(Errno::INVALID);
        }
        to_error(id)?;
        if !datagram {
            world().part(id.addr())?;
        }
        complete(id)
    };
    answer(disconnect())
}

impl World {
    fn part(&mut self, id: usize) -> Result<(), Errno> {
        let identifier = self.id(id)?;
        match identifier.state {
            State::Connected => {
                identifier.state = State::Parting;
                self.say(id, &Message::new(Kind::Disconnect));
                self.be_patient(id);
            }
            State::Left => {
                identifier.state = State::Over;
                self.say(id, &Message::new(Kind::Disconnected));
                self.wait_out(id);
            }
            _ => {}
        }
        Ok(())
    }
}

/// `rdma_notify(id, event)`: the program has seen a queue pair receive before the event that says it can.
///
/// # Safety
///
/// As for C: the identifier is alive.
pub(super) unsafe extern "C" fn notify(id: *mut rdma_cm_id, event: ibv_event_type) -> c_int {
    let notify = || {
        let mut world = world();
        match (event, world.id(id.addr())?.state) {
            (ibv_event_type::IBV_EVENT_COMM_EST, State::Accepted) => {
                world.established(id.addr());
                Ok(())
            }
            (ibv_event_type::IBV_EVENT_COMM_EST, State::Connected) => Err(Errno(libc::EISCONN)),
            _ => Err(Errno::INVALID),
        }
    };
    answer(notify())
}
