//! How connections are established and ended: requests, replies, ready-to-use packets, and disconnections.

use std::ffi::{c_int, c_void};
use std::mem;
use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_mummy_sys::{RDMA_MAX_INIT_DEPTH, ibv_event_type, rdma_cm_id, rdma_conn_param, rdma_port_space};

use super::calls::{bytes, return_code};
use super::channel::Source;
use super::endpoint::complete;
use super::events::{acknowledge, is_datagram, no_connection};
use super::id::{Identifier, State};
use super::listen::belongs_to_other_user;
use super::messages::{Kind, Message};
use super::peer::{CM_TIMEOUT, QKEY, Reason};
use super::port::{self, Found};
use super::transition::{ready_to_receive, ready_to_send, to_error};
use super::{World, device, iwarp, world};
use crate::sys::errno::Errno;
use crate::verbs::kind;
use crate::wire::packet::MAX_NUMBER;
use crate::wire::transport::Fabric;

/// The value that stands for the maximum, as in C.
const MAXIMUM: u8 = RDMA_MAX_INIT_DEPTH as u8;
/// How long a request to a port without a listener is retried before it is rejected. perftest with `-R` closes and
/// reopens its listener between two connections, and relies on network latency to cover the gap.
const GRACE: Duration = Duration::from_millis(100);
/// How long a request is retried while this process is still connected to the previous listener of the port.
const PEER_GRACE: Duration = Duration::from_secs(4);
/// The interval at which a request is retried that finds no listener or a full backlog. The kernel waits for the next
/// time-out instead.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The arguments of a call of `rdma_connect` or `rdma_accept`.
struct Arguments {
    parameters: rdma_conn_param,
    data: Vec<u8>,
    null: bool,
}

/// Reads the arguments of a call.
///
/// # Safety
///
/// The parameters are null or readable, and so is their private data.
unsafe fn read(parameters: *const rdma_conn_param) -> Arguments {
    // SAFETY: guaranteed by the caller.
    match unsafe { parameters.as_ref() } {
        None => {
            let most = rdma_conn_param { responder_resources: MAXIMUM, initiator_depth: MAXIMUM, ..no_connection() };
            let parameters = rdma_conn_param { retry_count: 7, rnr_retry_count: 7, ..most };
            Arguments { parameters, data: Vec::new(), null: true }
        }
        Some(&parameters) => {
            // SAFETY: guaranteed by the caller.
            let data = unsafe { bytes(parameters.private_data, parameters.private_data_len.into()) };
            Arguments { parameters, data, null: false }
        }
    }
}

/// Returns the number of reads and atomics that the device supports for each direction.
///
/// # Safety
///
/// The identifier is alive.
unsafe fn depth_limit(id: *mut rdma_cm_id) -> u8 {
    // SAFETY: guaranteed by the caller.
    let limit = unsafe { kind::Kind::of((*id).verbs) }.limits.max_rd_atomic;
    u8::try_from(limit).unwrap_or(u8::MAX)
}

impl Arguments {
    /// Makes the checks that do not require the peer.
    ///
    /// # Safety
    ///
    /// The identifier is alive.
    unsafe fn check(&self, id: *mut rdma_cm_id) -> Result<(), Errno> {
        // SAFETY: guaranteed by the caller.
        let (tcp, qp, verbs) = unsafe { ((*id).ps == rdma_port_space::RDMA_PS_TCP, (*id).qp, (*id).verbs) };
        let is_missing = qp.is_null() && self.null;
        if is_missing || verbs.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: guaranteed by the caller.
        let limit = unsafe { depth_limit(id) };
        let too_many = |requested: u8| tcp && requested != MAXIMUM && requested > limit;
        if too_many(self.parameters.responder_resources) || too_many(self.parameters.initiator_depth) {
            return Err(Errno::INVALID);
        }
        Ok(())
    }

    /// Returns the QP number, and whether the QP uses an SRQ. If the identifier has a QP, both are those of this QP.
    ///
    /// # Safety
    ///
    /// The identifier is alive, and so is its QP, if any.
    unsafe fn numbers(&self, id: *mut rdma_cm_id) -> (u32, u8) {
        // SAFETY: guaranteed by the caller.
        match unsafe { (*id).qp.as_ref() } {
            Some(qp) => (qp.qp_num, (!qp.srq.is_null()).into()),
            None => (self.parameters.qp_num & MAX_NUMBER, self.parameters.srq),
        }
    }

    /// Builds a packet from the arguments.
    ///
    /// # Safety
    ///
    /// As for [`numbers`](Self::numbers).
    unsafe fn message(
        &self,
        kind: Kind,
        id: *mut rdma_cm_id,
        (fabric, data): (Fabric, &[u8]),
    ) -> Result<Message, Errno> {
        // SAFETY: guaranteed by the caller.
        let (qp_number, srq) = unsafe { self.numbers(id) };
        let message = Message {
            qp_number,
            srq,
            qkey: QKEY,
            flow_control: self.parameters.flow_control,
            retry_count: self.parameters.retry_count.min(7),
            rnr_retry_count: self.parameters.rnr_retry_count.min(7),
            ..Message::new(kind)
        };
        message.with_data_on(fabric, data).ok_or(Errno::INVALID)
    }
}

/// `rdma_connect(id, conn_param)`.
///
/// # Safety
///
/// As in C: the identifier is alive, and the parameters are null or readable, with their private data.
pub(super) unsafe extern "C" fn connect(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int {
    let connect = || {
        // SAFETY: guaranteed by the caller.
        let (given, datagram) = unsafe { (read(conn_param), is_datagram(id)) };
        let data = [world().id(id.addr())?.connect_data.clone(), given.data.clone()].concat();
        let kind = if datagram { Kind::DatagramRequest } else { Kind::Request };
        let fabric = world().id(id.addr())?.fabric;
        // SAFETY: guaranteed by the caller.
        let (mut message, limit) = unsafe {
            given.check(id)?;
            (given.message(kind, id, (fabric, &data))?, depth_limit(id))
        };
        let clamp = |requested: u8| if requested == MAXIMUM { limit } else { requested };
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
            let begun = match fabric {
                Fabric::Host => world.send_request(id.addr(), message, Instant::now() + CM_TIMEOUT),
                Fabric::Roce => world.request_roce(id.addr(), &message),
                Fabric::Iwarp => world.begin_connect(id.addr(), message.qp_number, data),
            };
            if let Err(errno) = begun {
                world.id(id.addr())?.state = State::RouteResolved;
                return Err(errno);
            }
        }
        complete(id)
    };
    return_code(connect())
}

impl World {
    /// Sends a request, or schedules a retry if the port is down or the backlog is full.
    fn send_request(&mut self, id: usize, message: Message, until: Instant) -> Result<(), Errno> {
        let identifier = self.id(id)?;
        if device::is_down(Fabric::Host) {
            return self.retry_later(id, message, until);
        }
        // SAFETY: the identifier is alive.
        let space = unsafe { (*identifier.c).ps };
        let own = identifier.port.as_ref().filter(|port| Arc::strong_count(port) == 1);
        let socket = match own {
            // The socket that has the name of the port may be shared by several identifiers.
            Some(port) => Arc::clone(&port.socket),
            None => Arc::new(port::socket()?),
        };
        match port::connect(&*socket, space, message.to.ip(), message.to.port())? {
            Found::Listener if belongs_to_other_user(&socket) => {
                self.rejected(id, Reason::INVALID_GID.0.into(), Message::new(Kind::Reject).data);
            }
            Found::Listener => {
                let watched = self.watch(id, socket, Source::Link(id))?;
                self.id(id)?.link = Some(watched);
                self.send(id, &message);
                self.set_deadline(id, Some(until));
            }
            Found::Full => self.retry_later(id, message, until)?,
            // The peer may be about to reopen its listener.
            Found::NoListener if Instant::now() + CM_TIMEOUT < until + self.grace(message.to) => {
                self.retry_later(id, message, until)?;
            }
            Found::NoListener => self.no_listener(id),
        }
        Ok(())
    }

    /// Returns how long a request to a port without a listener is retried. A peer that is connected to this process may
    /// first close that connection and then listen again, possibly in another port space. On a busy machine, this takes
    /// time. Some clients, such as those of perftest, do not handle a rejection.
    pub(super) fn grace(&self, to: SocketAddr) -> Duration {
        let is_peer = |id: &Identifier| id.state == State::Connected && id.destination == Some(to);
        if self.ids.values().any(is_peer) { PEER_GRACE } else { GRACE }
    }

    /// Schedules a retry of a request.
    fn retry_later(&mut self, id: usize, message: Message, until: Instant) -> Result<(), Errno> {
        self.id(id)?.waiting = Some((message, until));
        self.set_deadline(id, Some(Instant::now() + RETRY_INTERVAL));
        Ok(())
    }

    pub(super) fn retry_request(&mut self, id: usize, message: Message, until: Instant) {
        if let Err(errno) = self.send_request(id, message, until) {
            self.rejected(id, -errno.0, Vec::new());
        }
    }
}

/// `rdma_accept(id, conn_param)`.
///
/// # Safety
///
/// As in C: the identifier is alive, and the parameters are null or readable, with their private data.
pub(super) unsafe extern "C" fn accept(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int {
    let accept = || {
        // SAFETY: guaranteed by the caller.
        let (given, datagram) = unsafe { (read(conn_param), is_datagram(id)) };
        let kind = if datagram { Kind::DatagramReply } else { Kind::Reply };
        let fabric = world().id(id.addr())?.fabric;
        // SAFETY: guaranteed by the caller.
        let (message, limit) = unsafe {
            given.check(id)?;
            (given.message(kind, id, (fabric, &given.data))?, depth_limit(id))
        };
        let limits = {
            let mut world = world();
            let identifier = world.current(id.addr())?;
            if identifier.state != State::Requested {
                return Err(Errno::INVALID);
            }
            let clamp = |requested: u8, offered: u8| if requested == MAXIMUM { offered.min(limit) } else { requested };
            identifier.initiator_depth = clamp(given.parameters.initiator_depth, identifier.initiator_depth);
            identifier.responder_resources =
                clamp(given.parameters.responder_resources, identifier.responder_resources);
            (identifier.initiator_depth, identifier.responder_resources)
        };
        if fabric == Fabric::Iwarp {
            iwarp::accept(id.addr(), message.qp_number, limits, &given.data)?;
            return complete(id);
        }
        if !datagram {
            ready_to_receive(id)?;
            ready_to_send(id)?;
        }
        if let Err(errno) = reply(id, message, datagram) {
            // The connection has already failed, so an error of this call is ignored.
            let _ = to_error(id);
            return Err(errno);
        }
        if datagram { acknowledge_own(id) } else { complete(id) }
    };
    return_code(accept())
}

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
    world.send(id.addr(), &message);
    if datagram {
        world.close_link(id.addr());
    } else {
        world.start_timeout(id.addr());
    }
    Ok(())
}

/// Acknowledges the event that is stored in the identifier.
fn acknowledge_own(id: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: the identifier is alive, and its `event` is null or a kept event.
    let event = unsafe { mem::replace(&mut (*id).event, ptr::null_mut()) };
    if event.is_null() { Ok(()) } else { acknowledge(event) }
}

/// `rdma_establish(id)`: the identifier must have no QP.
///
/// # Safety
///
/// As in C: the identifier is alive.
pub(super) unsafe extern "C" fn establish(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: guaranteed by the caller.
    if !unsafe { (*id).qp }.is_null() {
        return return_code(Err(Errno::INVALID));
    }
    return_code(respond(id))
}

/// Responds to a reply. If the identifier has a QP, moves it to RTS. Then sends the ready-to-use packet.
pub(super) fn respond(id: *mut rdma_cm_id) -> Result<(), Errno> {
    let ready = ready_to_receive(id).and_then(|()| ready_to_send(id)).and_then(|()| ready(id.addr()));
    if ready.is_err() {
        // The connection has already failed, so an error of this call is ignored.
        let _ = to_error(id);
    }
    ready
}

fn ready(id: usize) -> Result<(), Errno> {
    let mut world = world();
    let identifier = world.current(id)?;
    if identifier.state != State::Responded {
        return Err(Errno::INVALID);
    }
    identifier.state = State::Connected;
    world.send(id, &Message::new(Kind::ReadyToUse));
    Ok(())
}

/// `rdma_reject(id, private_data, private_data_len)`.
///
/// # Safety
///
/// As in C: the identifier is alive, and the private data is readable.
pub(super) unsafe extern "C" fn reject(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int {
    // SAFETY: guaranteed by the caller.
    return_code(unsafe { send_rejection(id, Reason::CONSUMER_DEFINED, data, length) })
}

/// `rdma_reject_ece(id, private_data, private_data_len)`.
///
/// # Safety
///
/// As in C: the identifier is alive, and the private data is readable.
pub(super) unsafe extern "C" fn reject_ece(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int {
    // SAFETY: guaranteed by the caller.
    return_code(unsafe { send_rejection(id, Reason::VENDOR_OPTION, data, length) })
}

/// Sends a rejection.
///
/// # Safety
///
/// The identifier is alive, and `length` bytes are readable.
unsafe fn send_rejection(id: *mut rdma_cm_id, reason: Reason, data: *const c_void, length: u8) -> Result<(), Errno> {
    // SAFETY: guaranteed by the caller.
    let (data, datagram) = unsafe { (bytes(data, length.into()), is_datagram(id)) };
    let (kind, reason) = match datagram {
        true => (Kind::DatagramReply, Reason::DATAGRAM_REJECTED),
        false => (Kind::Reject, reason),
    };
    let mut world = world();
    let identifier = world.current(id.addr())?;
    if !matches!(identifier.state, State::Requested | State::Responded) {
        return Err(Errno::INVALID);
    }
    let fabric = identifier.fabric;
    let message = Message { reason: reason.0, ..Message::new(kind) };
    let message = message.with_data_on(fabric, &data).ok_or(Errno::INVALID)?;
    let identifier = world.id(id.addr())?;
    identifier.state = State::Closed;
    world.set_deadline(id.addr(), None);
    if fabric == Fabric::Iwarp {
        world.end_stream(id.addr(), &data);
    }
    world.send(id.addr(), &message);
    world.close_link(id.addr());
    Ok(())
}

/// `rdma_disconnect(id)`.
///
/// # Safety
///
/// As in C: the identifier is alive, and so is its QP.
pub(super) unsafe extern "C" fn disconnect(id: *mut rdma_cm_id) -> c_int {
    let disconnect = || {
        // SAFETY: guaranteed by the caller.
        let (verbs, datagram) = unsafe { ((*id).verbs, is_datagram(id)) };
        let state = world().id(id.addr())?.state;
        let early = [State::Idle, State::Bound, State::AddressResolved, State::RouteResolved, State::Listening];
        if verbs.is_null() || early.contains(&state) {
            return Err(Errno::INVALID);
        }
        to_error(id)?;
        if !datagram {
            world().begin_disconnect(id.addr())?;
        }
        complete(id)
    };
    return_code(disconnect())
}

impl World {
    fn begin_disconnect(&mut self, id: usize) -> Result<(), Errno> {
        let identifier = self.id(id)?;
        if identifier.fabric == Fabric::Iwarp {
            self.end_stream(id, &[]);
        }
        match self.current(id)?.state {
            State::Connected => {
                self.id(id)?.state = State::Disconnecting;
                self.send(id, &Message::new(Kind::Disconnect));
                self.start_timeout(id);
            }
            State::PeerDisconnected => {
                self.id(id)?.state = State::Closed;
                self.send(id, &Message::new(Kind::Disconnected));
                self.enter_timewait(id);
            }
            _ => {}
        }
        Ok(())
    }
}

/// `rdma_notify(id, event)`: the program reports that the QP received a message before the connection's event.
///
/// # Safety
///
/// As in C: the identifier is alive.
pub(super) unsafe extern "C" fn notify(id: *mut rdma_cm_id, event: ibv_event_type) -> c_int {
    let notify = || {
        let mut world = world();
        match (event, world.current(id.addr())?.state) {
            (ibv_event_type::IBV_EVENT_COMM_EST, State::Accepted) => {
                world.has_communicated_on_roce(id.addr());
                world.established(id.addr());
                Ok(())
            }
            (ibv_event_type::IBV_EVENT_COMM_EST, State::Connected) => Err(Errno(libc::EISCONN)),
            _ => Err(Errno::INVALID),
        }
    };
    return_code(notify())
}
