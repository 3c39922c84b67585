//! Those who connect: they are of this process's user, greet soon, and are not too many.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::peers::Peers;
use super::session::{RING, Role, SHARED, Session};
use super::shared::Shared;
use super::socket;
use crate::sys::descriptor::Descriptor;

/// A greeting follows the connection at once, unless its sender was stopped in between.
const PATIENCE: Duration = Duration::from_secs(5);
/// Those who have not greeted yet.
const MOST_WAITING: usize = 256;
/// So many are taken at a time: whoever else may connect, of any user, holds nobody up.
const AT_ONCE: usize = 64;

/// Those who have connected and not greeted.
#[derive(Debug, Default)]
pub(super) struct Waiting(BTreeMap<u64, Guest>);

#[derive(Debug)]
struct Guest {
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

    /// Takes those who have connected, or some of them: it is called again while there are more.
    ///
    /// # Errors
    ///
    /// No more can be taken for now, such as for want of descriptors.
    pub(super) fn accept(&mut self, peers: &'static Peers, listener: &Descriptor) -> Result<(), Errno> {
        for _ in 0..AT_ONCE {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = match Descriptor::open(|| rustix::net::accept_with(listener, flags)) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(error) => return Err(error),
            };
            if !socket::is_ours(socket.as_fd()) {
                log::warn!("a process of another user is refused");
            } else if self.0.len() >= MOST_WAITING || peers.is_full() {
                log::warn!("a process is refused, as there are many sessions already");
            } else {
                let id = peers.id();
                peers.watch(&socket, id)?;
                self.0.insert(id, Guest { socket, until: Instant::now() + PATIENCE });
            }
        }
        Ok(())
    }

    /// Whether it was one of these who has something to say; then its session begins, or it is sent away.
    pub(super) fn hear(&mut self, peers: &'static Peers, id: u64) -> bool {
        let Some(guest) = self.0.get(&id) else { return false };
        let memory = match socket::greeted(guest.socket.as_fd(), RING as u32) {
            Ok(Some(memory)) => Shared::accept(&memory, SHARED),
            Ok(None) => return true,
            Err(garbage) => Err(garbage),
        };
        let Some(guest) = self.0.remove(&id) else { return true };
        peers.unwatch(&guest.socket);
        match memory {
            Ok(shared) => {
                let session = Session::new(peers, Role::Responder, guest.socket, Arc::new(shared));
                if let Err(error) = peers.enter(&session) {
                    log::warn!("a process is refused: {error}");
                }
            }
            Err(garbage) => log::warn!("a process is refused, as it sends {}", garbage.0),
        }
        true
    }

    /// Sends those away who have not greeted in time; when it is to be called again.
    pub(super) fn look(&mut self, now: Instant) -> Option<Instant> {
        self.0.retain(|_, guest| guest.until > now);
        self.0.values().map(|guest| guest.until).min()
    }
}
