//! Connects by address, and processes the events of rdma_cm without blocking.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use sideway::error::VerbError;
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::queue_pair::GenericQueuePair;
use sideway::rdmacm::{
    ConnectionInfo, ConnectionParameter, Event, EventKind, EventStatus, Identifier, PortSpace, RejectReason, Rejection,
};

use super::device::{in_words, verb};
use super::link::{LINKS, State, VerbsLink};
use super::{Incoming, LINGER, Stray, Verbs, now};
use crate::backend::{Ended, Established, Events, IncomingId, LinkId, ListenerId};
use crate::memory::Buf;

/// Time limit for each step of resolving the peer: its hardware address, then the route.
const RESOLVE: Duration = Duration::from_secs(2);
/// Local ACK timeout: 4.096 us × 2^14, which is 67 ms.
const ACK_TIMEOUT: u8 = 14;
/// How often the device retries a request that is not acknowledged. The request fails after eight time-outs of 67 to
/// 268 ms each, so a lost peer is detected within seconds.
const RETRIES: u8 = 7;
/// How often the device retries a SEND for which the peer has no receive (RNR). The peer's credits guarantee a receive,
/// so a limit is safe. The value 7 would mean no limit.
const RNR_RETRIES: u8 = 6;

/// After failures for this time, the events of the connection manager count as lost. Before, the process may be short of
/// descriptors or memory for a moment.
const PATIENCE: Duration = Duration::from_secs(2);

/// The object that owns an rdma_cm identifier.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Listener(ListenerId),
    VerbsLink(LinkId),
}

impl Verbs {
    pub(super) fn bind(&mut self, listener: ListenerId, address: SocketAddr, backlog: u32) -> io::Result<SocketAddr> {
        self.check_manager()?;
        let id = self.manager.create_id(PortSpace::Tcp).map_err(verb)?;
        id.setup_context(Owner::Listener(listener));
        id.bind_addr(address).map_err(verb)?;
        id.listen(i32::try_from(backlog).unwrap_or(i32::MAX)).map_err(verb)?;
        let mut address = address;
        address.set_port(id.port());
        self.listeners.insert(listener.0, id);
        Ok(address)
    }

    pub(super) fn resolve(&mut self, link: LinkId, address: SocketAddr, hello: &[u8]) -> io::Result<()> {
        if link.index >= LINKS {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "a worker has at most 2^24 links"));
        }
        self.check_manager()?;
        let id = self.manager.create_id(PortSpace::Tcp).map_err(verb)?;
        id.setup_context(Owner::VerbsLink(link));
        id.resolve_addr(None, address, RESOLVE).map_err(verb)?;
        self.links.enter(VerbsLink::new(link, id, State::Resolving(hello.to_vec())));
        Ok(())
    }

    /// Accepts a connect request. On an error, the request is dropped and thereby rejected.
    pub(super) fn answer(&mut self, incoming: IncomingId, link: LinkId, hello: &[u8]) -> io::Result<()> {
        let Some(Incoming { identifier: id, info, .. }) = self.incoming.remove(&incoming.0) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        id.setup_context(Owner::VerbsLink(link));
        let queue_pair = self.make_queue_pair(&id)?;
        let mut entry = VerbsLink::new(link, Arc::clone(&id), State::Connecting);
        entry.adopt(queue_pair, self.device.inline);
        let mut parameter = self.parameter(hello);
        parameter
            .setup_responder_resources(self.device.reads.min(info.responder_resources()))
            .setup_initiator_depth(self.device.reads.min(info.initiator_depth()));
        id.accept(&parameter).map_err(verb)?;
        self.settle(entry);
        Ok(())
    }

    /// Ends a link in any state.
    pub(super) fn close(&mut self, id: LinkId, why: Ended) {
        let Some(link) = self.links.get(id) else { return };
        match link.state {
            State::Draining { .. } => {}
            State::Established => {
                drain(link, why, false);
                self.links.unsettle(id.index);
            }
            State::Resolving(_) | State::Connecting => abandon(link, why, false),
        }
    }

    /// Processes the events of the connection manager.
    pub(super) fn manage(&mut self, events: &mut impl Events, _spare: &mut Vec<Buf>) -> usize {
        let mut ready = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 2];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok(count) = epoll::wait(&self.epoll, &mut ready[..], Some(&at_once)) else { return 0 };
        if !ready.iter().take(count).any(|event| event.data.u64() == 1) {
            return 0;
        }
        let mut count = 0;
        loop {
            match self.manager.try_get_cm_event() {
                Ok(Some(event)) => {
                    self.failures.0 = None;
                    self.handle(event, events);
                }
                Ok(None) => {
                    self.failures.0 = None;
                    return count;
                }
                Err(error) => {
                    self.manager_failed(error);
                    return count;
                }
            }
            count += 1;
        }
    }

    /// Without events, no link can be established: those that wait for events end, so that they can use TCP, and requests
    /// to listeners are rejected. Established links continue.
    fn manager_failed(&mut self, error: VerbError) {
        if self.failures.0.get_or_insert_with(Instant::now).elapsed() < PATIENCE {
            return;
        }
        rdma_mummy_sys::log!(error, "no more connections over RDMA: {error}; restart the program");
        // The descriptor stays readable, so threads would not sleep.
        if let Err(error) = epoll::delete(&self.epoll, self.manager_fd()) {
            rdma_mummy_sys::log!(debug, "{error}");
        }
        for link in self.links.list.iter_mut().flatten() {
            if matches!(link.state, State::Resolving(_) | State::Connecting) {
                abandon(link, Ended::Failed(verb(error.clone())), false);
            }
        }
        self.incoming.clear();
        self.listeners.clear();
        self.failures.1 = Some(error);
    }

    fn check_manager(&self) -> io::Result<()> {
        self.failures.1.clone().map_or(Ok(()), |error| Err(verb(error)))
    }

    fn handle(&mut self, event: Event, events: &mut impl Events) {
        let listener = event.listener_id().and_then(|id| id.get_context::<Owner>());
        let (id, kind) = event.into_parts();
        if let EventKind::ConnectRequest(info) = kind {
            // Dropping the request rejects it.
            let Some(&Owner::Listener(listener)) = listener.as_deref() else { return };
            return self.request(listener, id, info, events);
        }
        let Some(&Owner::VerbsLink(number)) = id.get_context::<Owner>().as_deref() else {
            return rdma_mummy_sys::log!(debug, "{kind:?} at a listener");
        };
        let Some(link) = self.links.get(number).filter(|link| Arc::ptr_eq(&link.identifier, &id)) else { return };
        let stepped = match (&mut link.state, kind) {
            (State::Resolving(_), EventKind::AddressResolved) => self.find_route(&id),
            (State::Resolving(hello), EventKind::RouteResolved) => {
                let hello = std::mem::take(hello);
                self.ask(number, &id, &hello)
            }
            (State::Connecting, EventKind::Established(info)) => {
                link.state = State::Established;
                let hello: &[u8] = if link.is_client { info.private_data() } else { &[] };
                return events.established(number, describe(&id), hello);
            }
            (State::Draining { is_disconnected, .. }, EventKind::Disconnected(_)) => return *is_disconnected = true,
            (State::Draining { .. }, EventKind::Established(_)) => {
                // The link was given up when it could not be disconnected yet. If it fails, the wait has a limit.
                _ = link.identifier.disconnect();
                return;
            }
            (State::Established, EventKind::Disconnected(_)) => {
                drain(link, Ended::PeerClosed, true);
                return self.links.unsettle(number.index);
            }
            // The peer's confirmation was lost, or comes after the disconnect. The peer is connected, and its messages
            // may have arrived.
            (State::Connecting, EventKind::Disconnected(_)) if !link.is_client => {
                link.state = State::Established;
                events.established(number, describe(&id), &[]);
                drain(link, Ended::PeerClosed, true);
                return self.links.unsettle(number.index);
            }
            (State::Established, EventKind::DeviceRemoval) => {
                drain(link, failure(io::ErrorKind::NetworkDown, "the device was removed"), true);
                return self.links.unsettle(number.index);
            }
            (State::Resolving(_) | State::Connecting, kind) => return refused(link, &kind),
            // Ignored: late events, and events that do not affect an established connection, such as an unreachable
            // neighbour or the end of TIMEWAIT.
            (_, kind) => return rdma_mummy_sys::log!(debug, "{kind:?}"),
        };
        if let Err(error) = stepped
            && let Some(link) = self.links.get(number)
        {
            abandon(link, Ended::Failed(error), false);
        }
    }

    fn request(&mut self, listener: ListenerId, id: Arc<Identifier>, info: ConnectionInfo, events: &mut impl Events) {
        let incoming = Incoming { identifier: id, info, listener };
        match (self.check_device(&incoming.identifier), incoming.identifier.get_device_context()) {
            (Ok(()), _) => self.enter(incoming, events),
            (Err(_), Some(device)) if !self.device.is_named => self.strays.push((device, Stray::Request(incoming))),
            // Dropping the request rejects it.
            (Err(error), _) => rdma_mummy_sys::log!(warn, "a request to connect is rejected: {error}"),
        }
    }

    /// Takes a request to connect that has arrived at a listener of another device.
    pub(crate) fn adopt(&mut self, incoming: Incoming, events: &mut impl Events) -> io::Result<()> {
        incoming.identifier.migrate(&self.manager).map_err(verb)?;
        self.enter(incoming, events);
        Ok(())
    }

    fn enter(&mut self, incoming: Incoming, events: &mut impl Events) {
        let number = self.next_incoming;
        self.next_incoming += 1;
        let peer = incoming.identifier.peer_address().unwrap_or_else(unknown);
        events.incoming(incoming.listener, IncomingId(number), peer, incoming.info.private_data());
        self.incoming.insert(number, incoming);
    }

    fn find_route(&mut self, id: &Arc<Identifier>) -> io::Result<()> {
        match (self.check_device(id), id.get_device_context(), id.local_address()) {
            (Ok(()), ..) => id.resolve_route(RESOLVE).map_err(verb),
            (Err(error), Some(device), Some(source)) if !self.device.is_named => {
                self.strays.push((device, Stray::Source(source.ip())));
                Err(io::Error::new(io::ErrorKind::CrossesDevices, error))
            }
            (Err(error), ..) => Err(error),
        }
    }

    /// Creates the queue pair, and sends the connect request.
    fn ask(&mut self, number: LinkId, id: &Arc<Identifier>, hello: &[u8]) -> io::Result<()> {
        let queue_pair = self.make_queue_pair(id)?;
        let (inline, parameter) = (self.device.inline, self.parameter(hello));
        let Some(mut link) = self.links.list.get_mut(number.index as usize).and_then(Option::take) else {
            return Ok(());
        };
        link.adopt(queue_pair, inline);
        link.is_client = true;
        link.state = State::Connecting;
        self.settle(link);
        id.connect(&parameter).map_err(verb)
    }

    /// Adds a link to the tables, after its queue pair was created.
    fn settle(&mut self, link: VerbsLink) {
        self.links.by_number.insert(link.qp_number, link.id);
        // Reserves an entry for the request that marks the end.
        self.links.room -= 1;
        self.links.enter(link);
    }

    fn make_queue_pair(&mut self, id: &Arc<Identifier>) -> io::Result<GenericQueuePair> {
        // The last free entry is for requests of the existing links.
        if self.links.room <= 1 {
            self.links.take_back_all();
        }
        if self.links.room <= 1 {
            let text = "the completion queue has no entry for another link; raise the number of receives";
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        if let Err(error) = id.set_ack_timeout(ACK_TIMEOUT) {
            rdma_mummy_sys::log!(debug, "{error}");
        }
        let mut builder = self.device.queue_pair(&self.cq);
        id.create_qp_generic(builder.setup_srq(self.links.receives.queue())).map_err(verb)
    }

    fn parameter(&self, hello: &[u8]) -> ConnectionParameter {
        let mut parameter = ConnectionParameter::new();
        parameter
            .setup_responder_resources(self.device.reads)
            .setup_initiator_depth(self.device.reads)
            .setup_retry_count(RETRIES)
            .setup_rnr_retry_count(RNR_RETRIES)
            .setup_srq(true)
            .setup_private_data(hello);
        parameter
    }

    /// Returns an error unless the connection uses this worker's device.
    fn check_device(&self, id: &Arc<Identifier>) -> io::Result<()> {
        let other = match id.get_device_context() {
            Some(device) if self.is_on(&device) => return Ok(()),
            Some(device) => device.name(),
            None => "no device".to_owned(),
        };
        let text = format!("the connection needs the device {other}, but this worker uses {}", self.device_name());
        let text = if other.starts_with("softiw") { format!("{text}; TCP is faster than {other}") } else { text };
        // The kind is not `Unsupported`: that would mean that the peer has refused the connection, but the address may
        // still be reachable over TCP. It is that of a worker without a device, because no other attempt helps.
        Err(io::Error::new(io::ErrorKind::NotFound, text))
    }
}

/// Starts to end a link: both sides disconnect, and the requests of the link are flushed.
pub(super) fn drain(link: &mut VerbsLink, why: Ended, is_disconnected: bool) {
    let is_gone = match link.identifier.disconnect() {
        Ok(()) => false,
        Err(error) => {
            rdma_mummy_sys::log!(debug, "{error}");
            true
        }
    };
    let is_flushed = !link.flush();
    let deadline = now() + LINGER.as_nanos() as u64;
    let is_disconnected = is_disconnected || is_gone;
    link.state = State::Draining { why, is_flushed, is_disconnected, deadline, turns: 0 };
}

/// Ends a link that was not established. `is_gone`: the peer has ended it.
fn abandon(link: &mut VerbsLink, why: Ended, is_gone: bool) {
    // The client may be connected already, and its messages may have taken receives, which the queue pair must return.
    if !link.is_client && link.queue_pair.is_some() {
        return drain(link, why, is_gone);
    }
    link.state = State::Draining { why, is_flushed: true, is_disconnected: true, deadline: 0, turns: 0 };
}

/// Ends a link whose connection was not established.
fn refused(link: &mut VerbsLink, kind: &EventKind) {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, HostUnreachable, NetworkDown, TimedOut};
    let why = match kind {
        EventKind::Rejected(rejection) => match refusal(rejection) {
            Some(refusal) => Ended::Rejected(refusal),
            None => failure(ConnectionRefused, rejection),
        },
        EventKind::AddressError(status) => failure(HostUnreachable, step("finding the address", *status)),
        EventKind::RouteError(status) => failure(HostUnreachable, step("finding the route", *status)),
        EventKind::ConnectError(status) => failure(ConnectionReset, step("connecting", *status)),
        EventKind::Unreachable(unreachable) => failure(TimedOut, unreachable),
        EventKind::Disconnected(_) => Ended::PeerClosed,
        EventKind::DeviceRemoval => failure(NetworkDown, "the device was removed"),
        kind => return rdma_mummy_sys::log!(debug, "{kind:?}"),
    };
    abandon(link, why, true);
}

/// Returns the bytes that the peer's worker passed to `reject`. Returns `None` if the peer's kernel rejected the
/// connection, or if its worker gave no reason.
fn refusal(rejection: &Rejection) -> Option<Vec<u8>> {
    let by_program = rejection.reason().is_none_or(|reason| reason == RejectReason::ConsumerDefined);
    let data = rejection.private_data();
    (by_program && !data.trimmed().is_empty()).then(|| data.to_vec())
}

fn step(step: &str, status: EventStatus) -> String {
    format!("{step}: {status}")
}

fn failure(kind: io::ErrorKind, text: impl ToString) -> Ended {
    Ended::Failed(io::Error::new(kind, text.to_string()))
}

pub(super) fn describe(id: &Arc<Identifier>) -> Established {
    let device = id.get_device_context().map_or_else(String::new, |device| device.name());
    let port = id.port_num().unwrap_or(0);
    let gid = id.local_gid().map_or_else(String::new, |gid| format!(" GID {}", in_words(gid)));
    Established {
        local: id.local_address().unwrap_or_else(unknown),
        peer: id.peer_address().unwrap_or_else(unknown),
        path: format!("{device} port {port}{gid}"),
    }
}

fn unknown() -> SocketAddr {
    (Ipv4Addr::UNSPECIFIED, 0).into()
}
