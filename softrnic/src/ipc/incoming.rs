//! Incoming connections. Their user is checked, their handshake has a time-out, and their number is limited.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::peers::Peers;
use super::session::{RING, Role, SHARED, Session};
use super::shared::Shared;
use super::socket;
use crate::sys::credentials::is_ours;
use crate::sys::descriptor::Descriptor;
use crate::sys::thread::Place;

/// The time-out of the handshake. A process sends the handshake directly after it has connected, unless it is stopped
/// before it can send.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of connections that have not sent their handshake.
const MAX_PENDING: usize = 256;
/// The maximum number of connections that a call accepts. Any user can connect, and the limit ensures that a flood of
/// connections delays nothing else.
const ACCEPT_BATCH: usize = 64;

/// The connections that have not sent their handshake.
#[derive(Debug, Default)]
pub(super) struct Waiting(BTreeMap<u64, Pending>);

#[derive(Debug)]
struct Pending {
    socket: Descriptor,
    until: Instant,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Accepts connections up to a limit. If more connections wait, the listener stays readable, and the caller calls
    /// this function again.
    ///
    /// # Errors
    ///
    /// Returns an error if no connection can be accepted now, for example because of the limit of descriptors.
    pub(super) fn accept(&mut self, peers: &'static Peers, place: Place, listener: &Descriptor) -> Result<(), Errno> {
        for _ in 0..ACCEPT_BATCH {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = match Descriptor::open(|| rustix::net::accept_with(listener, flags)) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(error) => return Err(error),
            };
            if !is_ours(socket.as_fd()) {
                rdma_mummy_sys::log!(warn, "rejected a process of another user");
            } else if self.0.len() >= MAX_PENDING || peers.is_full() {
                rdma_mummy_sys::log!(
                    warn,
                    "rejected a process: the limit of sessions is reached; end some of the processes"
                );
            } else {
                let id = peers.id();
                place.watch(&socket, id, EventFlags::IN)?;
                self.0.insert(id, Pending { socket, until: Instant::now() + HANDSHAKE_TIMEOUT });
            }
        }
        Ok(())
    }

    /// Handles the handshake of a connection: either begins a session or closes the connection. Returns whether `id` is
    /// a connection that waits for its handshake.
    pub(super) fn handle_handshake(&mut self, peers: &'static Peers, place: Place, id: u64) -> bool {
        let Some(pending) = self.0.get(&id) else { return false };
        let memory = match socket::receive_handshake(pending.socket.as_fd(), RING as u32) {
            Ok(Some(memory)) => Shared::accept(&memory, SHARED),
            Ok(None) => return true,
            Err(malformed) => Err(malformed),
        };
        let Some(pending) = self.0.remove(&id) else { return true };
        place.unwatch(&pending.socket);
        match memory {
            Ok(shared) => {
                let session = Session::new(peers, Role::Responder, pending.socket, Arc::new(shared));
                if let Err(error) = peers.enter(&session) {
                    rdma_mummy_sys::log!(warn, "rejected a process: {error}");
                }
            }
            Err(malformed) => rdma_mummy_sys::log!(warn, "rejected a process: {}", malformed.0),
        }
        true
    }

    /// Closes the connections whose handshake has timed out. Returns the time at which this function must be called
    /// again.
    pub(super) fn close_expired(&mut self, place: Place, now: Instant) -> Option<Instant> {
        self.0.retain(|_, pending| {
            let is_late = pending.until <= now;
            if is_late {
                // If a child has inherited the socket, the events do not end when this process closes it.
                place.unwatch(&pending.socket);
            }
            !is_late
        });
        self.0.values().map(|pending| pending.until).min()
    }
}
