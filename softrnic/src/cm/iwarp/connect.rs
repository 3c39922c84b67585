//! The active side of a connection. It must connect within [`CONNECT_TIMEOUT`], and then waits for the reply for at
//! most [`CM_TIMEOUT`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_mummy_sys::{rdma_cm_event_type as event_type, rdma_conn_param};
use rustix::event::epoll::EventFlags;
use rustix::net::{RecvFlags, SendFlags};

use super::{Setup, depth, hand_over, path, send, tcp_socket};
use crate::cm::calls::system;
use crate::cm::channel::{Source, Watched};
use crate::cm::events::{Parameters, Pending, no_connection};
use crate::cm::id::State;
use crate::cm::peer::CM_TIMEOUT;
use crate::cm::{World, device, world};
use crate::net::iwarp::connect::{Agreed, Failure, Initiator, Offer};
use crate::sys::descriptor::Descriptor;
use crate::sys::errno::Errno;
use crate::wire::transport::Fabric;
use crate::wiring::streams;

/// The time within which TCP must connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection that TCP refuses is retried. Some programs close and reopen their listener between two
/// connections.
const GRACE: Duration = Duration::from_millis(100);
/// The time between two retries.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// An attempt to connect, with the arguments of the call.
pub(in crate::cm) struct Attempt {
    number: u32,
    offer: Offer,
    /// Whether revision 2 was tried again because the peer had closed a connection without a reply.
    has_repeated: bool,
    has_revision_1: bool,
    is_connected: bool,
    retry_until: Instant,
}

/// Returns the event and the status that report a failed set-up, which are the same as in the kernel.
fn failed(errno: i32) -> (event_type, i32) {
    match errno {
        libc::ECONNREFUSED | libc::ECONNRESET => (event_type::RDMA_CM_EVENT_REJECTED, -errno),
        libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH => (event_type::RDMA_CM_EVENT_UNREACHABLE, -errno),
        _ => (event_type::RDMA_CM_EVENT_CONNECT_ERROR, -errno),
    }
}

/// Returns the parameters of an event, which contain the read depths of this side. They are limited to those of the
/// device.
fn parameters(initiator_depth: u16, responder_resources: u16) -> Parameters {
    let (initiator_depth, responder_resources) = (depth(initiator_depth), depth(responder_resources));
    Parameters::Connection(rdma_conn_param { initiator_depth, responder_resources, ..no_connection() })
}

/// Connects the QP after the peer has accepted and before the event is reported.
pub(in crate::cm) fn respond(id: usize) -> Result<(), Errno> {
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

impl World {
    /// Begins to connect. An event reports the result.
    pub(in crate::cm) fn begin_connect(&mut self, id: usize, number: u32, data: Vec<u8>) -> Result<(), Errno> {
        let identifier = self.id(id)?;
        let (ird, ord) = (identifier.responder_resources.into(), identifier.initiator_depth.into());
        let offer = Offer { ird, ord, has_crc: true, private: data };
        // This checks the length of the private data.
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
        if device::is_down(Fabric::Iwarp) {
            return self.try_later(id, attempt);
        }
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
            Err(rustix::io::Errno::INPROGRESS | rustix::io::Errno::INTR) => {
                // If the peer is on this host, TCP has already connected.
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                match rustix::net::send(&*socket, &bytes, flags) {
                    Ok(_) => {}
                    // The request is sent as soon as TCP connects, because the program may wait for the peer before
                    // it reads this channel's events.
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                        streams().send_once_connected(&socket, bytes).map_err(system)?;
                    }
                    Err(rustix::io::Errno::CONNREFUSED) => return self.refused(id, attempt),
                    Err(error) => {
                        self.set_up_failed(id, system(error).0, Vec::new());
                        return Ok(());
                    }
                }
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

    /// Retries a connection that TCP has refused, for a short time.
    fn refused(&mut self, id: usize, attempt: Attempt) -> Result<(), Errno> {
        self.close_link(id);
        if Instant::now() >= attempt.retry_until {
            self.set_up_failed(id, libc::ECONNREFUSED, Vec::new());
            return Ok(());
        }
        self.try_later(id, attempt)
    }

    fn try_later(&mut self, id: usize, attempt: Attempt) -> Result<(), Errno> {
        self.id(id)?.setup = Some(Setup::Retrying(attempt));
        self.set_deadline(id, Some(Instant::now() + RETRY_INTERVAL));
        Ok(())
    }

    /// Handles a deadline that has expired during the set-up of a connection.
    pub(in crate::cm) fn set_up_expired(&mut self, id: usize) {
        let Ok(identifier) = self.id(id) else { return };
        match identifier.setup.take() {
            Some(Setup::Retrying(attempt)) if Instant::now() >= attempt.retry_until + CONNECT_TIMEOUT => {
                self.set_up_failed(id, libc::ETIMEDOUT, Vec::new());
            }
            Some(Setup::Retrying(attempt)) => {
                if let Err(errno) = self.try_connect(id, attempt) {
                    self.set_up_failed(id, errno.0, Vec::new());
                }
            }
            Some(Setup::Requesting(mut attempt, initiator)) if !attempt.is_connected && has_peer(&identifier.link) => {
                // TCP has connected, so the time-out for the reply begins.
                attempt.is_connected = true;
                identifier.setup = Some(Setup::Requesting(attempt, initiator));
                self.set_deadline(id, Some(Instant::now() + CM_TIMEOUT));
            }
            _ => self.set_up_failed(id, libc::ETIMEDOUT, Vec::new()),
        }
    }

    /// Ends an attempt to connect that has failed.
    pub(super) fn set_up_failed(&mut self, id: usize, errno: i32, data: Vec<u8>) {
        self.set_deadline(id, None);
        let Ok(identifier) = self.id(id) else { return };
        (identifier.state, identifier.setup) = (State::Closed, None);
        let (event, status) = failed(errno);
        let parameters = Parameters::Connection(no_connection());
        self.put(Pending { status, parameters, data, ..Pending::new(id, event) });
        self.close_link(id);
    }

    pub(super) fn read_reply(
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
                Ok(Some(agreed)) => return self.agreed(id, attempt, agreed),
                Err(failure) => failure,
            },
        };
        rdma_mummy_sys::log!(debug, "cannot connect: {failure:?}");
        match failure {
            // A peer that reopens its listener also closes the connection. Revision 2 is therefore tried once more
            // before revision 1.
            Failure::NeedsRevision1 if is_closed && !attempt.has_repeated => {
                self.close_link(id);
                (attempt.has_repeated, attempt.is_connected) = (true, false);
                self.id(id)?.setup = Some(Setup::Retrying(attempt));
                self.set_deadline(id, Some(Instant::now() + RETRY_INTERVAL));
                Ok(())
            }
            Failure::NeedsRevision1 => {
                rdma_mummy_sys::log!(info, "the peer does not reply to MPA revision 2: trying revision 1");
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

    fn agreed(&mut self, id: usize, attempt: Attempt, agreed: Agreed) -> Result<(), Errno> {
        self.set_deadline(id, None);
        self.watch_link_for(id, EventFlags::RDHUP)?;
        let identifier = self.id(id)?;
        identifier.state = State::Responded;
        (identifier.initiator_depth, identifier.responder_resources) = (depth(agreed.ord), depth(agreed.ird));
        let (parameters, data) = (parameters(agreed.ord, agreed.ird), agreed.private.clone());
        identifier.setup = Some(Setup::Agreed(attempt, agreed));
        self.put(Pending { parameters, data, ..Pending::new(id, event_type::RDMA_CM_EVENT_CONNECT_RESPONSE) });
        Ok(())
    }
}
