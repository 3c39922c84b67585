//! `rdma_listen`, who comes to a listener, and the identifiers that are made of requests.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_mummy_sys::{ibv_ece, rdma_cm_event_type as event_type, rdma_cm_id, rdma_ud_param};
use rustix::net::{Shutdown, SocketFlags};

use super::calls::{answer, system};
use super::channel::{Source, Watched};
use super::events::{Parameters, Pending, is_datagram, no_datagram};
use super::id::State;
use super::messages::{Kind, Message};
use super::peer::{Heard, PATIENCE, Reason, connection, hear, tell};
use super::port::Port;
use super::{World, world};
use crate::ipc::socket::is_ours;
use crate::sys::descriptor::Descriptor;
use crate::sys::errno::Errno;

/// As many requests as wait where a program names no number, and the most.
const MOST_WAITING: c_int = 1024;
/// How long somebody who has come may be silent, and how many may.
const SILENCE: Duration = Duration::from_secs(4);
const MOST_SILENT: usize = 64;

/// Somebody who has come and said nothing yet.
pub(super) struct Newcomer {
    pub(super) watched: Watched,
    until: Instant,
}

/// A request that waits to be taken.
pub(super) struct Request {
    socket: Arc<Descriptor>,
    message: Message,
}

impl Request {
    /// Says that there will be no connection.
    pub(super) fn refuse(self) {
        let (kind, reason) = match self.message.kind {
            Kind::DatagramRequest => (Kind::DatagramReply, Reason::DATAGRAM_REJECTED),
            _ => (Kind::Reject, Reason::CONSUMER_DEFINED),
        };
        tell(&*self.socket, &Message { reason: reason.0, ..Message::new(kind) });
    }
}

/// `rdma_listen(id, backlog)`.
///
/// # Safety
///
/// As for C: the identifier is alive.
pub(super) unsafe extern "C" fn listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    answer(world().listen(id.addr(), backlog))
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
        // Of those that share an address one can listen.
        let listens = |other: &Port| Arc::ptr_eq(&other.socket, &port.socket);
        let others = self.ids.values().filter(|other| other.state == State::Listening);
        if others.filter_map(|other| other.port.as_deref()).any(listens) {
            return Err(port.host.in_use(port.host));
        }
        let backlog = if (1..=MOST_WAITING).contains(&backlog) { backlog } else { MOST_WAITING };
        rustix::net::listen(&*port.socket, backlog).map_err(system)?;
        let watched = self.watch(id, Arc::clone(&port.socket), Source::Listener(id))?;
        let identifier = self.id(id)?;
        identifier.listener = Some(watched);
        identifier.state = State::Listening;
        self.write_addresses(id)
    }

    /// A listener goes, with those who have come and said nothing.
    pub(super) fn stop_listening(&mut self, id: usize) {
        let Ok(identifier) = self.id(id) else { return };
        let channel = identifier.channel;
        let (listener, newcomers) = (identifier.listener.take(), std::mem::take(&mut identifier.newcomers));
        if let Some(listener) = &listener {
            // Others may share the socket: nobody comes to it any more.
            let _ = rustix::net::shutdown(&*listener.socket, Shutdown::Both);
        }
        for watched in listener.iter().chain(newcomers.iter().map(|one| &one.watched)) {
            self.unwatch(channel, watched);
        }
    }

    /// A listener's socket is ready.
    ///
    /// # Errors
    ///
    /// No descriptor is left for one who waits: `EMFILE`, `ENFILE`.
    pub(super) fn somebody_comes(&mut self, id: usize) -> Result<(), Errno> {
        let Some(listener) = self.id(id).ok().and_then(|id| id.listener.as_ref()) else { return Ok(()) };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match Descriptor::open(|| rustix::net::accept_with(&*listener.socket, flags)) {
            Ok(socket) => Arc::new(socket),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => return Ok(()),
            Err(errno) => return Err(system(errno)),
        };
        look_at_user(&socket);
        match hear(&*socket) {
            Heard::Message(message) => self.requested(id, socket, *message),
            Heard::Nothing => self.newcomer(id, socket),
            Heard::End => {}
        }
        Ok(())
    }

    fn newcomer(&mut self, id: usize, socket: Arc<Descriptor>) {
        let until = Instant::now() + SILENCE;
        let Ok(watched) = self.watch(id, socket, Source::Newcomer(id)) else { return };
        let Ok(identifier) = self.id(id) else { return };
        identifier.newcomers.push(Newcomer { watched, until });
        let channel = identifier.channel;
        if identifier.newcomers.len() > MOST_SILENT {
            let first = identifier.newcomers.remove(0);
            self.unwatch(channel, &first.watched);
        }
        self.next_silence(id);
    }

    /// One who has come says something, or goes.
    pub(super) fn newcomer_speaks(&mut self, id: usize, source: u64) {
        let Ok(identifier) = self.id(id) else { return };
        let channel = identifier.channel;
        let Some(place) = identifier.newcomers.iter().position(|one| one.watched.source() == source) else { return };
        let heard = hear(&*identifier.newcomers[place].watched.socket);
        if let Heard::Nothing = heard {
            return;
        }
        let Newcomer { watched, .. } = identifier.newcomers.remove(place);
        self.unwatch(channel, &watched);
        self.next_silence(id);
        if let Heard::Message(message) = heard {
            self.requested(id, watched.socket, *message);
        }
    }

    /// Those who were silent too long go.
    pub(super) fn forget_the_silent(&mut self, id: usize, now: Instant) {
        let Ok(identifier) = self.id(id) else { return };
        let channel = identifier.channel;
        let (gone, stay): (Vec<_>, _) =
            std::mem::take(&mut identifier.newcomers).into_iter().partition(|one| one.until <= now);
        identifier.newcomers = stay;
        for one in &gone {
            self.unwatch(channel, &one.watched);
        }
        self.next_silence(id);
    }

    fn next_silence(&mut self, id: usize) {
        let until = self.id(id).ok().and_then(|id| id.newcomers.iter().map(|one| one.until).min());
        self.set_deadline(id, until);
    }

    /// A request has come to a listener.
    fn requested(&mut self, id: usize, socket: Arc<Descriptor>, message: Message) {
        let Ok(identifier) = self.id(id) else { return };
        // SAFETY: the identifier is alive.
        let datagram = unsafe { is_datagram(identifier.c) };
        let expected = if datagram { Kind::DatagramRequest } else { Kind::Request };
        let covers = |port: &Arc<Port>| port.number == message.to.port() && port.host.covers(message.to.ip());
        if message.kind != expected || !identifier.port.as_ref().is_some_and(covers) {
            log::debug!("a peer of the connection manager asks for what is not here");
            return;
        }
        let parameters = match datagram {
            true => Parameters::Datagram(rdma_ud_param { ..no_datagram() }),
            false => Parameters::Connection(connection(&message)),
        };
        let data = message.data.clone();
        let request = Some(Request { socket, message });
        let kind = event_type::RDMA_CM_EVENT_CONNECT_REQUEST;
        self.put(Pending { parameters, data, request, ..Pending::new(id, kind) });
    }

    /// Makes the identifier that comes with a request.
    pub(super) fn make_requested(&mut self, listener: usize, request: Request) -> Result<*mut rdma_cm_id, Errno> {
        let found = self.id(listener)?;
        let (sync, c) = (found.sync, found.c);
        // SAFETY: the listener is alive.
        let (channel, context, kind) = unsafe { ((*c).channel, (*c).context, ((*c).ps, (*c).qp_type)) };
        let made = self.make_id((!sync).then_some(channel), context, kind)?;
        let id = made.addr();
        match self.set_up(id, request) {
            Ok(()) => Ok(made),
            Err(errno) => {
                self.hang_up(id);
                let gone = self.ids.remove(&id);
                if let Some(channel) = gone.filter(|gone| gone.sync).map(|gone| gone.channel) {
                    self.channels.remove(&channel);
                }
                // SAFETY: nobody has heard of it.
                drop(unsafe { Box::from_raw(made) });
                Err(errno)
            }
        }
    }

    /// Writes what a request says into the new identifier.
    fn set_up(&mut self, id: usize, request: Request) -> Result<(), Errno> {
        let Request { socket, message } = request;
        let watched = self.watch(id, socket, Source::Link(id))?;
        let identifier = self.id(id)?;
        (identifier.link, identifier.state) = (Some(watched), State::Requested);
        (identifier.source, identifier.destination) = (Some(message.to), Some(message.from));
        identifier.initiator_depth = message.responder_resources;
        identifier.responder_resources = message.initiator_depth;
        (identifier.retry_count, identifier.rnr_retry_count) = (message.retry_count, message.rnr_retry_count);
        (identifier.remote_qp, identifier.remote_psn) = (message.qp_number, message.psn);
        identifier.options.traffic_class = message.traffic_class;
        identifier.remote_ece = ibv_ece { vendor_id: message.ece.0, options: message.ece.1, comp_mask: 0 };
        self.attach(id)?;
        self.write_path(id)
    }

    /// Until when an answer is waited for, from now on.
    pub(super) fn be_patient(&mut self, id: usize) {
        self.set_deadline(id, Some(Instant::now() + PATIENCE));
    }
}

/// Anybody may connect; that the data of others does not arrive is worth a line.
fn look_at_user(socket: &Descriptor) {
    if !is_ours(socket.as_fd()) {
        log::debug!("a process of another user connects: queue pairs reach those of the same user alone");
    }
}
