//! Ways to other processes: a session is made with the first message.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::peers::Peers;
use super::session::{RING, Role, SHARED, Session};
use super::shared::Shared;
use super::{block, socket};
use crate::sys::unpoisoned;

/// Who was not there is not asked again so soon.
const FORGET: Duration = Duration::from_millis(1);

/// What is known of other blocks.
#[derive(Debug)]
pub(super) struct Ways(RwLock<BTreeMap<u32, Way>>);

#[derive(Debug)]
enum Way {
    Session(Arc<Session>),
    /// Nobody was there, until then.
    Nobody(Instant),
}

impl Ways {
    pub(super) const fn new() -> Self {
        Self(RwLock::new(BTreeMap::new()))
    }

    /// The session with the process that has this block, which is not this one, made where there is none. Does not wait.
    pub(super) fn find(&self, peers: &'static Peers, block: u32) -> Option<Arc<Session>> {
        if let Some(Way::Session(session)) = unpoisoned(self.0.read()).get(&block)
            && session.is_alive()
        {
            return Some(Arc::clone(session));
        }
        let mut ways = unpoisoned(self.0.write());
        match ways.get(&block) {
            Some(Way::Session(session)) if session.is_alive() => return Some(Arc::clone(session)),
            // Only the thread ends it, which takes it in to the end first; a new one could come before that.
            Some(Way::Session(_)) => return None,
            Some(Way::Nobody(until)) if Instant::now() < *until => return None,
            _ => {}
        }
        let session = if peers.has_block(block) { Err(Errno::ISCONN) } else { connect(peers, block) };
        match session {
            Ok(session) => {
                ways.insert(block, Way::Session(Arc::clone(&session)));
                Some(session)
            }
            Err(error) => {
                log::debug!("no session with the process of block {block:x}: {error}");
                // Few blocks have anybody: what is out of date goes when there is much of it.
                if ways.len() > 4096 {
                    ways.retain(|_, way| matches!(way, Way::Session(_)));
                }
                ways.insert(block, Way::Nobody(Instant::now() + FORGET));
                None
            }
        }
    }

    /// Forgets a session that is over.
    pub(super) fn forget(&self, session: &Session) {
        let Role::Requester(block) = session.role else { return };
        let mut ways = unpoisoned(self.0.write());
        if let Some(Way::Session(known)) = ways.get(&block)
            && known.id == session.id
        {
            ways.remove(&block);
        }
    }
}

/// Begins a session. It can be used at once: what is put in waits for the other process.
fn connect(peers: &'static Peers, block: u32) -> Result<Arc<Session>, Errno> {
    let socket = socket::new()?;
    rustix::net::connect(&socket, &socket::address(&block::name(block))?)?;
    if !socket::is_ours(socket.as_fd()) {
        return Err(Errno::PERM);
    }
    let (shared, memory) = Shared::create(SHARED)?;
    let session = Session::new(peers, Role::Requester(block), socket, Arc::new(shared));
    session.park_both();
    // Before the greeting, so that the other process finds the wish for bells.
    socket::greet(session.socket.as_fd(), memory.as_fd(), RING as u32)?;
    peers.enter(&session)?;
    Ok(session)
}
