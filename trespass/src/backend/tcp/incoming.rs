//! Connections that clients have opened, until the worker accepts them.

use std::io;
use std::net::{IpAddr, TcpListener};

use rustix::event::epoll;

use super::link::TcpLink;
use super::{HANDSHAKE, OF_LISTENER, OF_PENDING, Tcp, now, socket};
use crate::backend::{Events, IncomingId, ListenerId};

/// Maximum number of connections whose clients have sent no hello. Beyond it, the oldest one of the host with the most
/// of them is dropped.
const SILENT: usize = 64;
/// How long no connection is accepted after the system had no descriptor or memory for one, in nanoseconds.
const PAUSE: u64 = 100_000_000;

/// A listener.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) id: ListenerId,
    pub(super) socket: TcpListener,
    /// Whether connections stay in the system's queue because the worker answers no more of them.
    pub(super) is_held: bool,
    /// The time at which to accept again after the system had no descriptor or memory for a connection.
    pub(super) paused: Option<u64>,
    /// Whether an RDMA device has tried to connect by iWARP, whose connections are TCP connections to the same port.
    pub(super) refused_iwarp: bool,
}

/// A connection that the worker has not accepted.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) id: IncomingId,
    pub(super) listener: ListenerId,
    pub(super) host: IpAddr,
    pub(super) link: TcpLink,
}

impl Tcp {
    /// Returns the reason why clients of a listener that has RDMA too use TCP.
    pub(crate) fn why_tcp(&self, listener: ListenerId) -> &'static str {
        match self.listeners.iter().any(|listening| listening.id == listener && listening.refused_iwarp) {
            true => "the client chose TCP, or its device uses iWARP, for which the listener has no TCP port left",
            false => "the client chose TCP",
        }
    }

    /// Accepts connections from a listener, whose clients have not sent a hello yet.
    pub(super) fn accept_all(&mut self, number: u32) {
        let Some(at) = self.listeners.iter().position(|listening| listening.id.0 == number) else { return };
        loop {
            let Listening { id: listener, socket, is_held, paused, .. } = &self.listeners[at];
            if *is_held || paused.is_some() {
                return;
            }
            let (listener, accepted) = (*listener, socket.accept());
            let (socket, host) = match accepted {
                Ok((socket, peer)) => (socket, peer.ip()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The client has given up, or a signal has arrived.
                Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {
                    continue;
                }
                Err(_) if self.drop_silent() => continue,
                Err(error) => {
                    rdma_mummy_sys::log!(warn, "cannot accept a connection for now: {error}");
                    self.listeners[at].paused = Some(now() + PAUSE);
                    return self.watch_listener(at);
                }
            };
            let id = IncomingId(self.next_incoming);
            self.next_incoming += 1;
            if socket::prepare(&socket).and_then(|()| self.watch(&socket, OF_PENDING | id.0 & 0xffff_ffff)).is_ok() {
                let link = TcpLink::accepted(socket, now() + HANDSHAKE);
                self.pending.push_back(Pending { id, listener, host, link });
                if self.silent().count() > SILENT {
                    self.drop_silent();
                }
            }
        }
    }

    /// The connections whose clients have sent no hello: their places in the list, and the clients' hosts.
    fn silent(&self) -> impl Iterator<Item = (usize, IpAddr)> {
        let silent = self.pending.iter().enumerate().filter(|(_, pending)| pending.link.awaits_hello());
        silent.map(|(at, pending)| (at, pending.host))
    }

    /// Drops a connection whose client has sent no hello: the oldest one of the host that has the most. Returns whether
    /// there was one.
    fn drop_silent(&mut self) -> bool {
        let silent: Vec<(usize, IpAddr)> = self.silent().collect();
        let of = |host| silent.iter().filter(|(_, other)| *other == host).count();
        // Of several that compare equal, `min_by_key` returns the first.
        let oldest = silent.iter().min_by_key(|(_, host)| usize::MAX - of(*host));
        oldest.is_some_and(|(at, _)| self.pending.remove(*at).is_some())
    }

    /// Requests the events of a listener, unless it accepts no connections for now.
    pub(super) fn watch_listener(&self, at: usize) {
        let Listening { id, socket, is_held, paused, .. } = &self.listeners[at];
        let flags = if *is_held || paused.is_some() { epoll::EventFlags::empty() } else { epoll::EventFlags::IN };
        let data = epoll::EventData::new_u64(OF_LISTENER | u64::from(id.0));
        if let Err(error) = epoll::modify(&self.epoll, socket, data, flags) {
            rdma_mummy_sys::log!(error, "cannot watch a listener: {error}");
        }
    }

    /// Reads the hello of an incoming connection, or drops the connection.
    pub(super) fn greet(&mut self, number: u64, events: &mut impl Events) {
        let Some(at) = self.pending.iter().position(|pending| pending.id.0 & 0xffff_ffff == number) else { return };
        let Pending { id, listener, link, .. } = &mut self.pending[at];
        match link.read_hello() {
            Ok(Some((peer, hello))) => {
                // The worker answers when it has room; their number is limited.
                link.deadline = u64::MAX;
                events.incoming(*listener, *id, peer, &hello);
            }
            Ok(None) => {}
            Err(_) => {
                let Some(Pending { listener, host, link, .. }) = self.pending.remove(at) else { return };
                let listening = self.listeners.iter_mut().find(|listening| listening.id == listener);
                if let Some(listening) = listening.filter(|listening| link.is_iwarp() && !listening.refused_iwarp) {
                    listening.refused_iwarp = true;
                    rdma_mummy_sys::log!(
                        warn,
                        "refused an iWARP connection from {host}: this listener uses its port for TCP; to accept iWARP \
                         instead, set Options::transport to Rdma"
                    );
                }
            }
        }
    }
}
