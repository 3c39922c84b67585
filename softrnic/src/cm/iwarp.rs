//! Connections of iWARP devices: the set-up on TCP sockets. [`Connection`] owns the socket before and after the set-up.
//!
//! A listener of reliable connections also listens on the TCP port of its number. A client whose destination is on
//! another host connects there. Each step has a time-out: [`CONNECT_TIMEOUT`] for TCP, [`CM_TIMEOUT`] for the reply, and
//! the time-out of connections without a request on the listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_mummy_sys::{
    ibv_qp_state, ibv_qp_type, rdma_cm_event_type as event_type, rdma_cm_id, rdma_conn_param, rdma_port_space,
};
use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, sockopt};

use super::address::{Scope, gid};
use super::calls::system;
use super::channel::{Source, Watched};
use super::events::{Parameters, Pending, no_connection};
use super::id::{Identifier, State};
use super::listen::MAX_BACKLOG;
use super::messages::{Kind, Message};
use super::peer::CM_TIMEOUT;
use super::route::HOPS;
use super::{World, device, world};
use crate::net::iwarp::connect::{Agreed, Failure, Initiator, Offer, Request, Responder};
use crate::net::iwarp::connection::Connection;
use crate::qp;
use crate::qp::registry::QpRegistry;
use crate::sys::descriptor::Descriptor;
use crate::sys::errno::Errno;
use crate::verbs::port::PORT;
use crate::verbs::queue_pair::show_state;
use crate::wire::address::Path;
use crate::wire::limits::MAX_RD_ATOMIC;
use crate::wire::operation::Service;
use crate::wire::transport::Carrier;
use crate::wiring::streams;

/// Time-out of a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a connection that TCP refuses is retried, and the interval: programs listen anew between two
/// connections.
const GRACE: Duration = Duration::from_millis(100);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The progress of an identifier's connection.
pub(super) enum Setup {
    /// TCP has refused the connection, which is retried.
    Retrying(Attempt),
    /// TCP connects, or the request was sent.
    Requesting(Attempt, Initiator),
    /// The peer's request waits for the program.
    Requested(Request),
    /// The peer has accepted, and the program has not taken the event yet.
    Agreed(Attempt, Agreed),
    Connected(Arc<Connection>),
}

/// The arguments of a connect call.
pub(super) struct Attempt {
    number: u32,
    offer: Offer,
    /// The peer has closed a connection without a reply.
    has_repeated: bool,
    has_revision_1: bool,
    is_connected: bool,
    retry_until: Instant,
}

/// Whether identifiers of this kind can use an iWARP device.
///
/// # Safety
///
/// The identifier is alive.
pub(super) unsafe fn is_possible(id: *mut rdma_cm_id) -> bool {
    // SAFETY: the caller's promise.
    let kind = unsafe { ((*id).ps, (*id).qp_type) };
    kind == (rdma_port_space::RDMA_PS_TCP, ibv_qp_type::IBV_QPT_RC) && device::exists(true)
}

fn family(address: SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn tcp_socket(address: SocketAddr) -> Result<Descriptor, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Descriptor::open(|| rustix::net::socket_with(family(address), SocketType::STREAM, flags, Some(ipproto::TCP)))
        .map_err(system)
}

/// The event and status for a failed set-up, as in the kernel.
fn failed(errno: i32) -> (event_type, i32) {
    match errno {
        libc::ECONNREFUSED | libc::ECONNRESET => (event_type::RDMA_CM_EVENT_REJECTED, -errno),
        libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH => (event_type::RDMA_CM_EVENT_UNREACHABLE, -errno),
        _ => (event_type::RDMA_CM_EVENT_CONNECT_ERROR, -errno),
    }
}

/// The path between two addresses.
fn path(from: SocketAddr, to: SocketAddr, traffic_class: u8) -> Path {
    Path {
        destination: gid(to.ip()),
        source: gid(from.ip()),
        source_index: 0,
        flow_label: 0,
        hop_limit: HOPS,
        traffic_class,
        service_level: 0,
        port: PORT,
        static_rate: 0,
    }
}

/// The parameters of an event. The limits are those of this side, from the peer's point of view.
fn parameters(initiator_depth: u16, responder_resources: u16) -> Parameters {
    let (initiator_depth, responder_resources) = (depth(initiator_depth), depth(responder_resources));
    Parameters::Connection(rdma_conn_param { initiator_depth, responder_resources, ..no_connection() })
}

/// A limit of reads within that of the device, which fits into a byte.
fn depth(value: u16) -> u8 {
    value.min(MAX_RD_ATOMIC as u16) as u8
}

/// Connects the QP, and hands over the socket. No lock of the world is held, since the QP may wait for other threads.
fn hand_over(
    socket: Arc<Descriptor>,
    (agreed, is_initiator): (&Agreed, bool),
    first: Vec<u8>,
    number: u32,
    path: Path,
) -> Result<Arc<Connection>, Errno> {
    let pair = QpRegistry::of_process().find(number).filter(|pair| pair.parts().service == Service::Iwarp);
    let pair = pair.ok_or(Errno::INVALID)?;
    let made = streams().connection(socket, agreed, is_initiator, first, (number, &path)).map_err(system)?;
    let carrier: Arc<dyn Carrier> = Arc::<Connection>::clone(&made);
    pair.connect(carrier, path, (depth(agreed.ord), depth(agreed.ird)))?;
    if let Err(error) = streams().begin(&made) {
        let _ = pair.change(qp::State::ReadyToSend, qp::State::Error, pair.attributes());
        return Err(system(error));
    }
    Ok(made)
}

/// Accepts a request; the identifier is in [`State::Requested`].
pub(super) fn accept(id: usize, number: u32, limits: (u8, u8), data: &[u8]) -> Result<(), Errno> {
    let (request, socket, path) = {
        let mut world = world();
        let identifier = world.id(id)?;
        let (Some(from), Some(to), Some(link)) = (identifier.source, identifier.destination, &identifier.link) else {
            return Err(Errno::INVALID);
        };
        let (socket, path) = (Arc::clone(&link.socket), path(from, to, identifier.options.traffic_class));
        let Some(Setup::Requested(request)) = identifier.setup.take() else { return Err(Errno::INVALID) };
        (request, socket, path)
    };
    let offer = Offer { ord: limits.0.into(), ird: limits.1.into(), has_crc: true, private: data.to_vec() };
    let mut first = Vec::new();
    let result = match request.accept(&offer, &mut first) {
        Ok(agreed) => hand_over(socket, (&agreed, false), first, number, path),
        Err(failure) => {
            log::debug!("cannot accept a connection: {failure:?}");
            send(&socket, &first);
            Err(Errno(libc::EPROTO))
        }
    };
    let mut world = world();
    match result {
        Ok(made) => {
            world.stream_connected(id, made)?;
            world.established(id);
            Ok(())
        }
        Err(errno) => {
            world.id(id)?.state = State::Closed;
            world.close_link(id);
            Err(errno)
        }
    }
}

/// Connects the QP after the peer has accepted, before the event is reported.
pub(super) fn respond(id: usize) -> Result<(), Errno> {
    let (attempt, agreed, socket, path) = {
        let mut world = world();
        let identifier = world.id(id)?;
        let (Some(from), Some(to), Some(link)) = (identifier.source, identifier.destination, &identifier.link) else {
            return Err(Errno::INVALID);
        };
        let (socket, path) = (Arc::clone(&link.socket), path(from, to, identifier.options.traffic_class));
        let Some(Setup::Agreed(attempt, agreed)) = identifier.setup.take() else { return Err(Errno::INVALID) };
        (attempt, agreed, socket, path)
    };
    let made = hand_over(socket, (&agreed, true), Vec::new(), attempt.number, path);
    let mut world = world();
    match made {
        Ok(made) => {
            world.stream_connected(id, made)?;
            world.id(id)?.state = State::Connected;
            Ok(())
        }
        Err(errno) => {
            world.close_link(id);
            Err(errno)
        }
    }
}

/// Whether TCP has connected.
fn has_peer(link: &Option<Watched>) -> bool {
    link.as_ref().is_some_and(|link| rustix::net::getpeername(&*link.socket).is_ok())
}

/// Whether the peer has closed its direction, or the connection is lost.
fn is_closed(socket: &Descriptor) -> bool {
    let mut poll = [PollFd::new(socket, PollFlags::RDHUP)];
    rustix::event::poll(&mut poll, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0)
}

/// Sends the bytes of a start-up frame, which fit into the buffer of a new socket.
fn send(socket: &Descriptor, bytes: &[u8]) {
    if let Err(error) = rustix::net::send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        log::debug!("cannot send to the peer of a connection: {error}");
    }
}

/// Rejects a request.
pub(super) fn send_rejection(socket: &Descriptor, request: &Request, data: &[u8]) {
    let mut bytes = Vec::new();
    if request.reject(data, &mut bytes).is_ok() {
        send(socket, &bytes);
    }
}

impl World {
    /// Listens on the TCP port of an identifier. Without it, an identifier of a RoCE device listens on this host only.
    pub(super) fn listen_on_tcp(&mut self, id: usize, backlog: i32) -> Result<(), Errno> {
        let identifier = self.id(id)?;
        // SAFETY: the identifier is alive.
        let (Some(source), true) = (identifier.source, unsafe { is_possible(identifier.c) }) else { return Ok(()) };
        if source.ip().is_loopback() && device::exists(false) {
            // Other hosts cannot reach it.
            return Ok(());
        }
        let af_only = identifier.options.af_only;
        let listen = || {
            let socket = tcp_socket(source)?;
            sockopt::set_socket_reuseaddr(&socket, true).map_err(system)?;
            if source.is_ipv6() {
                sockopt::set_ipv6_v6only(&socket, af_only).map_err(system)?;
            }
            rustix::net::bind(&socket, &source).map_err(system)?;
            rustix::net::listen(&socket, backlog.min(MAX_BACKLOG)).map_err(system)?;
            Ok::<_, Errno>(socket)
        };
        match listen() {
            Ok(socket) => {
                let watched = self.watch(id, Arc::new(socket), Source::StreamListener(id))?;
                self.id(id)?.stream_listener = Some(watched);
                Ok(())
            }
            Err(errno) if device::exists(false) => {
                let error = std::io::Error::from_raw_os_error(errno.0);
                log::info!("other hosts cannot connect: cannot listen on TCP port {}: {error}", source.port());
                Ok(())
            }
            Err(errno) => Err(errno),
        }
    }

    /// Records the connection, and shows the new state in the QP of the identifier, if any.
    fn stream_connected(&mut self, id: usize, made: Arc<Connection>) -> Result<(), Errno> {
        let identifier = self.id(id)?;
        identifier.setup = Some(Setup::Connected(made));
        // SAFETY: the identifier is alive, and so is its QP.
        unsafe {
            let qp = (*identifier.c).qp;
            if !qp.is_null() {
                show_state(qp, ibv_qp_state::IBV_QPS_RTS);
            }
        }
        Ok(())
    }

    /// Begins to connect; the result is an event.
    pub(super) fn begin_connect(&mut self, id: usize, number: u32, data: Vec<u8>) -> Result<(), Errno> {
        let identifier = self.id(id)?;
        let (ird, ord) = (identifier.responder_resources.into(), identifier.initiator_depth.into());
        let offer = Offer { ird, ord, has_crc: true, private: data };
        // Checks the length of the private data.
        Initiator::new(offer.clone()).start(&mut Vec::new()).map_err(|_| Errno::INVALID)?;
        self.try_connect(
            id,
            Attempt {
                number,
                offer,
                has_repeated: false,
                has_revision_1: false,
                is_connected: false,
                retry_until: Instant::now() + GRACE,
            },
        )
    }

    fn try_connect(&mut self, id: usize, attempt: Attempt) -> Result<(), Errno> {
        let identifier = self.id(id)?;
        let (Some(from), Some(to)) = (identifier.source, identifier.destination) else { return Err(Errno::INVALID) };
        let socket = tcp_socket(to)?;
        let mut from = from;
        from.set_port(0);
        rustix::net::bind(&socket, &from).map_err(system)?;
        let offer = attempt.offer.clone();
        let initiator = if attempt.has_revision_1 { Initiator::of_revision_1(offer) } else { Initiator::new(offer) };
        let mut bytes = Vec::new();
        initiator.start(&mut bytes).map_err(|_| Errno::INVALID)?;
        let socket = Arc::new(socket);
        match rustix::net::connect(&*socket, &to) {
            Ok(()) => send(&socket, &bytes),
            // The program may wait for the peer before it takes an event of this channel.
            Err(rustix::io::Errno::INPROGRESS | rustix::io::Errno::INTR) => {
                streams().send_once_connected(&socket, bytes).map_err(system)?;
            }
            Err(rustix::io::Errno::CONNREFUSED) => return self.refused(id, attempt),
            Err(error) => return Err(system(error)),
        }
        let source = rustix::net::getsockname(&*socket).map_err(system)?;
        let watched = self.watch(id, socket, Source::Link(id))?;
        let identifier = self.id(id)?;
        (identifier.link, identifier.setup) = (Some(watched), Some(Setup::Requesting(attempt, initiator)));
        if let Ok(source) = SocketAddr::try_from(source) {
            identifier.source = Some(source);
        }
        self.set_deadline(id, Some(Instant::now() + CONNECT_TIMEOUT));
        self.write_addresses(id)
    }

    /// Handles a connection that TCP has refused: retries it for a short time.
    fn refused(&mut self, id: usize, attempt: Attempt) -> Result<(), Errno> {
        self.close_link(id);
        if Instant::now() >= attempt.retry_until {
            self.set_up_failed(id, libc::ECONNREFUSED, Vec::new());
            return Ok(());
        }
        self.id(id)?.setup = Some(Setup::Retrying(attempt));
        self.set_deadline(id, Some(Instant::now() + RETRY_INTERVAL));
        Ok(())
    }

    /// Handles a passed deadline of a connection that is set up.
    pub(super) fn set_up_expired(&mut self, id: usize) {
        let Ok(identifier) = self.id(id) else { return };
        match identifier.setup.take() {
            Some(Setup::Retrying(attempt)) => {
                if let Err(errno) = self.try_connect(id, attempt) {
                    self.set_up_failed(id, errno.0, Vec::new());
                }
            }
            Some(Setup::Requesting(mut attempt, initiator)) if !attempt.is_connected && has_peer(&identifier.link) => {
                // The rest of the time is for the reply.
                attempt.is_connected = true;
                identifier.setup = Some(Setup::Requesting(attempt, initiator));
                self.set_deadline(id, Some(Instant::now() + CM_TIMEOUT));
            }
            _ => self.set_up_failed(id, libc::ETIMEDOUT, Vec::new()),
        }
    }

    /// Ends an attempt to connect.
    fn set_up_failed(&mut self, id: usize, errno: i32, data: Vec<u8>) {
        self.set_deadline(id, None);
        let Ok(identifier) = self.id(id) else { return };
        (identifier.state, identifier.setup) = (State::Closed, None);
        let (event, status) = failed(errno);
        let parameters = Parameters::Connection(no_connection());
        self.put(Pending { status, parameters, data, ..Pending::new(id, event) });
        self.close_link(id);
    }

    /// Handles the ready socket of a connection, before or after its set-up.
    pub(super) fn handle_stream(&mut self, id: usize) {
        let Ok(identifier) = self.id(id) else { return };
        let Some(link) = &identifier.link else { return };
        let socket = Arc::clone(&link.socket);
        let done = match identifier.setup.take() {
            Some(Setup::Requesting(attempt, initiator)) => self.read_reply(id, &socket, attempt, initiator),
            other => {
                identifier.setup = other;
                if is_closed(&socket) {
                    self.handle_peer_end(id);
                }
                Ok(())
            }
        };
        if let Err(errno) = done {
            self.set_up_failed(id, errno.0, Vec::new());
        }
    }

    /// Replaces the events that the channel waits for.
    fn watch_again(&mut self, id: usize, socket: &Arc<Descriptor>, flags: EventFlags) -> Result<(), Errno> {
        let identifier = self.id(id)?;
        let (channel, old) = (identifier.channel, identifier.link.take());
        if let Some(old) = old {
            self.unwatch(channel, &old);
        }
        let watched = self.watch_for(id, Arc::clone(socket), Source::Link(id), flags)?;
        self.id(id)?.link = Some(watched);
        Ok(())
    }

    /// Reads the reply.
    fn read_reply(
        &mut self,
        id: usize,
        socket: &Arc<Descriptor>,
        mut attempt: Attempt,
        mut initiator: Initiator,
    ) -> Result<(), Errno> {
        let mut buffer = [0; 1024];
        let mut is_closed = false;
        let failure = match rustix::net::recv(&**socket, &mut buffer[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) | Err(rustix::io::Errno::CONNRESET) => {
                is_closed = true;
                initiator.closed()
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                self.id(id)?.setup = Some(Setup::Requesting(attempt, initiator));
                return Ok(());
            }
            Err(rustix::io::Errno::CONNREFUSED) => return self.refused(id, attempt),
            Err(error) => return Err(system(error)),
            Ok((_, length)) => match initiator.received(&buffer[..length]) {
                Ok(None) => {
                    self.id(id)?.setup = Some(Setup::Requesting(attempt, initiator));
                    return Ok(());
                }
                Ok(Some(agreed)) => return self.agreed(id, socket, attempt, agreed),
                Err(failure) => failure,
            },
        };
        log::debug!("cannot connect: {failure:?}");
        match failure {
            // A listener that is replaced also closes the connection.
            Failure::NeedsRevision1 if is_closed && !attempt.has_repeated => {
                self.close_link(id);
                (attempt.has_repeated, attempt.is_connected) = (true, false);
                self.id(id)?.setup = Some(Setup::Retrying(attempt));
                self.set_deadline(id, Some(Instant::now() + RETRY_INTERVAL));
                Ok(())
            }
            Failure::NeedsRevision1 => {
                log::info!("the peer does not reply to MPA revision 2: trying revision 1");
                self.close_link(id);
                (attempt.has_revision_1, attempt.is_connected) = (true, false);
                self.try_connect(id, attempt)
            }
            Failure::Rejected { private } => {
                self.set_up_failed(id, libc::ECONNREFUSED, private);
                Ok(())
            }
            Failure::Closed => Err(Errno(libc::ECONNRESET)),
            _ => Err(Errno(libc::EPROTO)),
        }
    }

    fn agreed(&mut self, id: usize, socket: &Arc<Descriptor>, attempt: Attempt, agreed: Agreed) -> Result<(), Errno> {
        self.set_deadline(id, None);
        self.watch_again(id, socket, EventFlags::RDHUP)?;
        let identifier = self.id(id)?;
        identifier.state = State::Responded;
        (identifier.initiator_depth, identifier.responder_resources) = (depth(agreed.ord), depth(agreed.ird));
        let (parameters, data) = (parameters(agreed.ord, agreed.ird), agreed.private.clone());
        identifier.setup = Some(Setup::Agreed(attempt, agreed));
        self.put(Pending { parameters, data, ..Pending::new(id, event_type::RDMA_CM_EVENT_CONNECT_RESPONSE) });
        Ok(())
    }

    /// Ends the connection of an identifier that is disconnected, rejected or destroyed.
    pub(super) fn end_stream(&mut self, id: usize, data: &[u8]) {
        let Ok(identifier) = self.id(id) else { return };
        match &identifier.setup {
            Some(Setup::Requested(request)) => {
                if let Some(link) = &identifier.link {
                    send_rejection(&link.socket, request, data);
                }
            }
            Some(Setup::Connected(connection)) => connection.end(),
            _ => {}
        }
    }
}

impl Identifier {
    /// Whether the connection has its socket, and closes it.
    pub(super) fn has_stream(&self) -> bool {
        matches!(self.setup, Some(Setup::Connected(_)))
    }
}

/// Reads more of the request of a new connection.
///
/// # Errors
///
/// The peer has closed the connection, or sent no valid request.
pub(super) fn read_request(watched: &Watched, responder: &mut Responder) -> Result<Option<(Request, Message)>, ()> {
    let mut buffer = [0; 1024];
    let length = match rustix::net::recv(&*watched.socket, &mut buffer[..], RecvFlags::DONTWAIT) {
        Ok((_, length)) if length > 0 => length,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
        _ => return Err(()),
    };
    let request = responder.received(&buffer[..length]).map_err(|failure| {
        log::debug!("closed a connection: its request is invalid: {failure:?}");
    })?;
    let Some(request) = request else { return Ok(None) };
    // A socket for both families has mapped addresses.
    let address = |name: rustix::io::Result<rustix::net::SocketAddrAny>| {
        let address = SocketAddr::try_from(name.map_err(drop)?).map_err(drop)?;
        Ok(SocketAddr::new(address.ip().to_canonical(), address.port()).with_scope_of(address))
    };
    let limit = MAX_RD_ATOMIC as u16;
    let (ird, ord) = request.depths().unwrap_or((limit, limit));
    let message = Message {
        from: address(
            rustix::net::getpeername(&*watched.socket).and_then(|name| name.ok_or(rustix::io::Errno::NOTCONN)),
        )?,
        to: address(rustix::net::getsockname(&*watched.socket))?,
        responder_resources: depth(ird),
        initiator_depth: depth(ord),
        data: request.private().to_vec(),
        ..Message::new(Kind::Request)
    };
    Ok(Some((request, message)))
}
