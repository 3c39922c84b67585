//! `rdma_listen`, incoming connections, and the identifiers of requests.
//!
//! Any process in the network namespace can connect. Requests are received when the program takes events of the
//! listener's channel. If the listener moves to another channel (`rdma_migrate_id`), requests that have arrived but
//! were not received yet are received on the new channel. Connections that send no valid request within
//! [`REQUEST_TIMEOUT`] are closed.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_mummy_sys::{ibv_ece, rdma_cm_event_type as event_type, rdma_cm_id, rdma_ud_param};
use rustix::event::epoll::EventFlags;
use rustix::net::{Shutdown, SocketFlags};

use super::calls::{return_code, system};
use super::channel::{Source, Watched};
use super::events::{Parameters, Pending, is_datagram, no_datagram};
use super::id::{State, free};
use super::iwarp::Setup;
use super::messages::{Kind, Message};
use super::peer::{CM_TIMEOUT, Reason, Received, connection, receive, send_message};
use super::port::Port;
use super::roce::Attached;
use super::{World, device, world};
use crate::net::iwarp::connect::{self as iwarp, Responder};
use crate::sys::credentials::is_ours;
use crate::sys::descriptor::Descriptor;
use crate::sys::errno::Errno;
use crate::wire::transport::Fabric;

/// The default and the largest backlog.
pub(super) const MAX_BACKLOG: c_int = 1024;
/// The time-out of connections that have sent no request, and the maximum number of such connections. If there are
/// more, one of them is closed: the oldest one of the host that has the most.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);
const MAX_SILENT: usize = 64;

/// A connection that has not sent its request.
pub(super) struct NewConnection {
    pub(super) watched: Watched,
    until: Instant,
    /// The host of the peer.
    host: Option<IpAddr>,
    /// The state of the set-up on TCP.
    responder: Option<Responder>,
}

impl NewConnection {
    /// The fabric on which the connection has arrived.
    pub(super) fn fabric(&self) -> Fabric {
        if self.responder.is_some() { Fabric::Iwarp } else { Fabric::Host }
    }
}

/// A queued request.
pub(super) struct Request {
    origin: Origin,
    message: Message,
}

/// How a request has arrived.
pub(super) enum Origin {
    /// On a socket within this host.
    Host(Arc<Descriptor>),
    /// On TCP, in this form. The message contains the same fields.
    Stream(Arc<Descriptor>, iwarp::Request),
    /// In a management datagram.
    Roce(Attached),
}

/// `rdma_listen(id, backlog)`.
///
/// # Safety
///
/// As in C: the identifier is alive.
pub(super) unsafe extern "C" fn listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    return_code(world().listen(id.addr(), backlog))
}

impl World {
    pub(super) fn listen(&mut self, id: usize, backlog: c_int) -> Result<(), Errno> {
        if self.id(id)?.state == State::Idle {
            self.bind(id, SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))?;
        }
        let identifier = self.id(id)?;
        if identifier.state != State::Bound {
            return Err(Errno::INVALID);
        }
        let port = identifier.port.clone().ok_or(Errno::INVALID)?;
        // If several identifiers share an address, only one of them can listen.
        let listens = |other: &Port| Arc::ptr_eq(&other.socket, &port.socket);
        let others = self.ids.values().filter(|other| other.state == State::Listening);
        if others.filter_map(|other| other.port.as_deref()).any(listens) {
            return Err(port.host.in_use(port.host));
        }
        let backlog = if (1..=MAX_BACKLOG).contains(&backlog) { backlog } else { MAX_BACKLOG };
        rustix::net::listen(&*port.socket, backlog).map_err(system)?;
        let watched = self.watch(id, Arc::clone(&port.socket), Source::Listener(id))?;
        let identifier = self.id(id)?;
        identifier.listener = Some(watched);
        identifier.state = State::Listening;
        identifier.backlog = backlog as usize;
        if let Err(errno) = self.listen_on_tcp(id, backlog).and_then(|()| self.listen_on_roce(id)) {
            self.stop_listening(id);
            self.id(id)?.state = State::Bound;
            return Err(errno);
        }
        self.follow_port(id);
        self.write_addresses(id)
    }

    /// Rejects a request for which no identifier is created.
    pub(super) fn refuse(&mut self, request: Request) {
        let (kind, reason) = match request.message.kind {
            Kind::DatagramRequest => (Kind::DatagramReply, Reason::DATAGRAM_REJECTED),
            _ => (Kind::Reject, Reason::CONSUMER_DEFINED),
        };
        match request.origin {
            Origin::Host(socket) => {
                send_message(&*socket, &Message { reason: reason.0, ..Message::new(kind) });
            }
            Origin::Stream(socket, stream) => super::iwarp::send_rejection(&socket, &stream, &[]),
            Origin::Roce(attached) => self.refuse_roce(attached),
        }
    }

    /// Closes a listener and those of its connections that have sent no request.
    pub(super) fn stop_listening(&mut self, id: usize) {
        self.stop_listening_on_roce(id);
        let Ok(identifier) = self.id(id) else { return };
        let channel = identifier.channel;
        let (listener, new_connections) = (identifier.listener.take(), std::mem::take(&mut identifier.new_connections));
        let stream_listener = identifier.stream_listener.take();
        for listener in listener.iter().chain(&stream_listener) {
            // Other identifiers may share the socket and keep it open. It is therefore shut down, so that it accepts no
            // further connections.
            let _ = rustix::net::shutdown(&*listener.socket, Shutdown::Both);
        }
        for watched in listener.iter().chain(&stream_listener).chain(new_connections.iter().map(|one| &one.watched)) {
            self.unwatch(channel, watched);
        }
    }

    /// Accepts a connection on a listening socket that is ready. If `is_stream` is true, this is the TCP socket.
    ///
    /// # Errors
    ///
    /// `EMFILE` or `ENFILE` if no descriptor is available.
    pub(super) fn accept_connection(&mut self, id: usize, is_stream: bool) -> Result<(), Errno> {
        let identifier = self.id(id).ok();
        let fabric = if is_stream { Fabric::Iwarp } else { Fabric::Host };
        let identifier = identifier.filter(|_| !device::is_down(fabric));
        let listener =
            identifier.and_then(|id| if is_stream { id.stream_listener.as_ref() } else { id.listener.as_ref() });
        let Some(listener) = listener else { return Ok(()) };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match Descriptor::open(|| rustix::net::accept_with(&*listener.socket, flags)) {
            Ok(socket) => Arc::new(socket),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => return Ok(()),
            Err(errno) => return Err(system(errno)),
        };
        if is_stream {
            let mut responder = Responder::default();
            match super::iwarp::read_request(&socket, &mut responder) {
                Ok(Some((stream, message))) => self.handle_request(id, Origin::Stream(socket, stream), message),
                Ok(None) => self.add_new_connection(id, socket, Some(responder)),
                Err(()) => {}
            }
            return Ok(());
        }
        match receive(&*socket) {
            Received::Message(message) => self.handle_request(id, Origin::Host(socket), *message),
            Received::Nothing => self.add_new_connection(id, socket, None),
            Received::End => {}
        }
        Ok(())
    }

    fn add_new_connection(&mut self, id: usize, socket: Arc<Descriptor>, responder: Option<Responder>) {
        let until = Instant::now() + REQUEST_TIMEOUT;
        let Ok(watched) = self.watch(id, socket, Source::NewConnection(id)) else { return };
        let Ok(identifier) = self.id(id) else { return };
        let host = rustix::net::getpeername(&*watched.socket).ok().flatten();
        let host = host.and_then(|name| SocketAddr::try_from(name).ok()).map(|address| address.ip());
        identifier.new_connections.push(NewConnection { watched, until, host, responder });
        let channel = identifier.channel;
        if identifier.new_connections.len() > MAX_SILENT {
            let hosts: Vec<_> = identifier.new_connections.iter().map(|one| one.host).collect();
            let first = identifier.new_connections.remove(oldest_of_most(&hosts));
            self.unwatch(channel, &first.watched);
        }
        self.update_silence_deadline(id);
    }

    /// Handles the first packet or the end of a new connection.
    pub(super) fn handle_new_connection(&mut self, id: usize, source: u64) {
        let Ok(identifier) = self.id(id) else { return };
        let channel = identifier.channel;
        let Some(place) = identifier.new_connections.iter().position(|one| one.watched.source() == source) else {
            return;
        };
        let NewConnection { watched, responder, .. } = &mut identifier.new_connections[place];
        let received = match responder {
            Some(responder) => super::iwarp::read_request(&watched.socket, responder)
                .map(|found| found.map(|(stream, message)| (message, Some(stream)))),
            None => match receive(&*watched.socket) {
                Received::Message(message) => Ok(Some((*message, None))),
                Received::Nothing => Ok(None),
                Received::End => Err(()),
            },
        };
        if received.as_ref().is_ok_and(Option::is_none) {
            return;
        }
        let NewConnection { watched, .. } = identifier.new_connections.remove(place);
        self.unwatch(channel, &watched);
        self.update_silence_deadline(id);
        if let Ok(Some((message, stream))) = received {
            let origin = match stream {
                Some(stream) => Origin::Stream(watched.socket, stream),
                None => Origin::Host(watched.socket),
            };
            self.handle_request(id, origin, message);
        }
    }

    /// Closes the connections that have timed out.
    pub(super) fn close_silent(&mut self, id: usize, now: Instant) {
        let Ok(identifier) = self.id(id) else { return };
        let channel = identifier.channel;
        let (removed, stay): (Vec<_>, _) =
            std::mem::take(&mut identifier.new_connections).into_iter().partition(|one| one.until <= now);
        identifier.new_connections = stay;
        for one in &removed {
            self.unwatch(channel, &one.watched);
        }
        self.update_silence_deadline(id);
    }

    fn update_silence_deadline(&mut self, id: usize) {
        let until = self.id(id).ok().and_then(|id| id.new_connections.iter().map(|one| one.until).min());
        self.set_deadline(id, until);
    }

    /// Handles a request that was sent to a listener.
    fn handle_request(&mut self, id: usize, origin: Origin, message: Message) {
        let Ok(identifier) = self.id(id) else { return };
        // SAFETY: the identifier is alive.
        let datagram = unsafe { is_datagram(identifier.c) };
        let expected = if datagram { Kind::DatagramRequest } else { Kind::Request };
        if let Origin::Host(socket) = &origin
            && belongs_to_other_user(socket)
        {
            let kind = if datagram { Kind::DatagramReply } else { Kind::Reject };
            let reason = if datagram { Reason::DATAGRAM_REJECTED } else { Reason::INVALID_GID };
            send_message(&**socket, &Message { reason: reason.0, ..Message::new(kind) });
            return;
        }
        let covers = |port: &Arc<Port>| port.number == message.to.port() && port.host.covers(message.to.ip());
        if message.kind != expected || !identifier.port.as_ref().is_some_and(covers) {
            rdma_mummy_sys::log!(debug, "rejected a connect request for another port, address or service");
            return;
        }
        self.announce(id, origin, message);
    }

    /// Queues the event of a request to a listener.
    pub(super) fn announce(&mut self, id: usize, origin: Origin, message: Message) {
        let parameters = match message.kind {
            Kind::DatagramRequest => Parameters::Datagram(rdma_ud_param { ..no_datagram() }),
            _ => Parameters::Connection(connection(&message)),
        };
        let data = message.data.clone();
        let request = Some(Request { origin, message });
        let kind = event_type::RDMA_CM_EVENT_CONNECT_REQUEST;
        self.put(Pending { parameters, data, request, ..Pending::new(id, kind) });
    }

    /// Creates the identifier of a request.
    pub(super) fn make_requested(&mut self, listener: usize, request: Request) -> Result<*mut rdma_cm_id, Errno> {
        let found = self.id(listener)?;
        let (sync, c) = (found.sync, found.c);
        // SAFETY: the listener is alive.
        let (channel, context, kind) = unsafe { ((*c).channel, (*c).context, ((*c).ps, (*c).qp_type)) };
        let made = self.make_id((!sync).then_some(channel), context, kind)?;
        let id = made.addr();
        match self.set_up(id, request) {
            Ok(()) => {
                self.take_events_of_roce(id);
                Ok(made)
            }
            Err(errno) => {
                self.abandon_roce(id);
                self.close_link(id);
                let removed = self.ids.remove(&id);
                if let Some(channel) = removed.filter(|removed| removed.sync).map(|removed| removed.channel) {
                    self.channels.remove(&channel);
                }
                // SAFETY: the identifier was never returned to the program.
                unsafe { free(made) };
                Err(errno)
            }
        }
    }

    /// Writes the fields of a request to the new identifier.
    fn set_up(&mut self, id: usize, request: Request) -> Result<(), Errno> {
        let Request { origin, message } = request;
        let (fabric, link, setup) = match origin {
            Origin::Host(socket) => (Fabric::Host, Some(self.watch(id, socket, Source::Link(id))?), None),
            // `Connection` processes the bytes that arrive, so only the end of the stream is handled here.
            Origin::Stream(socket, stream) => {
                let watched = self.watch_for(id, socket, Source::Link(id), EventFlags::RDHUP)?;
                (Fabric::Iwarp, Some(watched), Some(Setup::Requested(stream)))
            }
            Origin::Roce(attached) => {
                self.own_roce(id, attached)?;
                (Fabric::Roce, None, None)
            }
        };
        let identifier = self.id(id)?;
        (identifier.fabric, identifier.setup) = (fabric, setup);
        (identifier.link, identifier.state) = (link, State::Requested);
        (identifier.source, identifier.destination) = (Some(message.to), Some(message.from));
        identifier.initiator_depth = message.responder_resources;
        identifier.responder_resources = message.initiator_depth;
        (identifier.retry_count, identifier.rnr_retry_count) = (message.retry_count, message.rnr_retry_count);
        (identifier.remote_qp, identifier.remote_psn) = (message.qp_number, message.psn);
        identifier.options.traffic_class = message.traffic_class;
        identifier.remote_ece = ibv_ece { vendor_id: message.ece.0, options: message.ece.1, comp_mask: 0 };
        self.attach(id)?;
        self.follow_port(id);
        self.write_path(id)
    }

    /// Starts the time-out of an identifier that waits for a packet of its peer.
    pub(super) fn start_timeout(&mut self, id: usize) {
        // A connection on RoCE has times of its own.
        if self.id(id).is_ok_and(|id| id.fabric == Fabric::Roce) {
            return;
        }
        self.set_deadline(id, Some(Instant::now() + CM_TIMEOUT));
    }
}

/// Returns the index of the first occurrence of the most frequent value.
fn oldest_of_most(values: &[Option<IpAddr>]) -> usize {
    let count = |value| values.iter().filter(|other| **other == value).count();
    let most = values.iter().map(|value| count(*value)).max();
    values.iter().position(|value| Some(count(*value)) == most).unwrap_or(0)
}

/// Whether a connection within the host leads to a process of another user, whose QPs cannot be reached. Logs it.
pub(super) fn belongs_to_other_user(socket: &Descriptor) -> bool {
    let is_other = !is_ours(socket.as_fd());
    if is_other {
        rdma_mummy_sys::log!(
            warn,
            "rejected a connection to a process of another user: shared memory connects the processes of one user"
        );
    }
    is_other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_connections_of_one_host_evict_no_other() {
        let hosts = |last: &[u8]| last.iter().map(|last| Some(IpAddr::from([192, 0, 2, *last]))).collect::<Vec<_>>();
        for (values, expected) in [(&[1, 2, 2, 3, 2][..], 1), (&[1, 2, 3], 0), (&[3, 1, 1, 2, 2], 1)] {
            assert_eq!(oldest_of_most(&hosts(values)), expected, "{values:?}");
        }
    }
}
