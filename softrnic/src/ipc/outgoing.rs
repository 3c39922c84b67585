//! Sessions that this process opens when it sends its first message to another process.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::peers::Peers;
use super::session::{RING, Role, SHARED, Session};
use super::shared::Shared;
use super::{block, socket};
use crate::sys::credentials::is_ours;
use crate::sys::unpoisoned;

/// The delay before another attempt to reach a block that was unreachable.
const RETRY_DELAY: Duration = Duration::from_millis(1);

/// The routes to the known blocks. The route to a block is the session with its process, or the time until which the
/// process counts as unreachable.
#[derive(Debug)]
pub(super) struct Routes(RwLock<BTreeMap<u32, Route>>);

#[derive(Debug)]
enum Route {
    Session(Arc<Session>),
    /// The process is unreachable for this reason. The next attempt is made at this time.
    Unreachable(Instant, Errno),
}

impl Routes {
    pub(super) const fn new() -> Self {
        Self(RwLock::new(BTreeMap::new()))
    }

    /// Returns the session with the process that owns this block, and opens the session if necessary. Returns `None` if
    /// that process is unreachable, or if this process owns the block. This function does not block.
    pub(super) fn find(&self, peers: &'static Peers, block: u32) -> Option<Arc<Session>> {
        if let Some(Route::Session(session)) = unpoisoned(self.0.read()).get(&block)
            && session.is_alive()
        {
            return Some(Arc::clone(session));
        }
        let mut routes = unpoisoned(self.0.write());
        match routes.get(&block) {
            Some(Route::Session(session)) if session.is_alive() => return Some(Arc::clone(session)),
            // The thread must first receive the last packets of the old session, because packets of a new session could
            // overtake them.
            Some(Route::Session(_)) => return None,
            Some(Route::Unreachable(until, _)) if Instant::now() < *until => return None,
            _ => {}
        }
        let session = if peers.has_block(block) { Err(Errno::ISCONN) } else { connect(peers, block) };
        match session {
            Ok(session) => {
                routes.insert(block, Route::Session(Arc::clone(&session)));
                Some(session)
            }
            Err(error) => {
                rdma_mummy_sys::log!(debug, "cannot open a session with the process of block {block:x}: {error}");
                // Usually few blocks are in use, so outdated routes are removed only when there are many routes.
                if routes.len() > 4096 {
                    routes.retain(|_, route| matches!(route, Route::Session(_)));
                }
                routes.insert(block, Route::Unreachable(Instant::now() + RETRY_DELAY, error));
                None
            }
        }
    }

    /// Opens the session with the process that owns this block, which is another process, before the first message.
    ///
    /// # Errors
    ///
    /// The reason why that process is unreachable, unless it passes by itself.
    pub(super) fn open(&self, peers: &'static Peers, block: u32) -> Result<(), Errno> {
        if self.find(peers, block).is_some() {
            return Ok(());
        }
        match unpoisoned(self.0.read()).get(&block) {
            // A full backlog.
            Some(Route::Unreachable(_, Errno::AGAIN | Errno::INTR)) => Ok(()),
            Some(Route::Unreachable(_, error)) => Err(*error),
            // An earlier session must end first.
            _ => Ok(()),
        }
    }

    /// Removes a session that has ended.
    pub(super) fn forget(&self, session: &Session) {
        let Role::Requester(block) = session.role else { return };
        let mut routes = unpoisoned(self.0.write());
        if let Some(Route::Session(known)) = routes.get(&block)
            && known.id == session.id
        {
            routes.remove(&block);
        }
    }
}

/// Opens a session. It can be used at once, because its packets wait until the other process accepts it.
fn connect(peers: &'static Peers, block: u32) -> Result<Arc<Session>, Errno> {
    // The memory is created first, because the other process would report a connection without memory.
    let (shared, memory) = Shared::create(SHARED)?;
    let socket = socket::new()?;
    rustix::net::connect(&socket, &socket::address(&block::name(block))?)?;
    if !is_ours(socket.as_fd()) {
        return Err(Errno::PERM);
    }
    let session = Session::new(peers, Role::Requester(block), socket, Arc::new(shared));
    session.park_both();
    // Wake-ups are requested before the handshake, so that the other process finds the requests.
    socket::send_handshake(session.socket.as_fd(), memory.as_fd(), RING as u32)?;
    peers.enter(&session)?;
    Ok(session)
}
