//! The sessions with other processes, and the choice of the thread that serves a session.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, TryLockError};
use std::thread;
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::block;
use super::group::Groups;
use super::outgoing::Routes;
use super::session::Session;
use super::unsettled::Unsettled;
use super::wakeup::{Sleep, Sleeper};
use crate::sys::descriptor::Descriptor;
use crate::sys::socket_set::{Polls, Reason, SOCKETS, SocketSet, yield_if_empty};
use crate::sys::thread::Reactor;
use crate::sys::unpoisoned;
use crate::wire::transport::{Deliver, Sockets};

/// The maximum number of sessions. Further sessions are refused.
const MAX_SESSIONS: usize = 1024;
/// How often a thread that waits for an event receives packets before the thread of softrnic continues.
const MAX_ROUNDS: u32 = 16;

/// A program that polls receives a packet within this time, unless the scheduler has suspended the program.
pub(super) const SHORT_WAIT: Duration = Duration::from_micros(30);

/// The sessions with other processes.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(super) deliver: &'static dyn Deliver,
    pub(super) groups: Groups,
    /// Whether any session exists. If not, an empty poll of a program makes no further checks.
    has_sessions: AtomicBool,
    /// Whether a program has polled since the thread has last checked this flag.
    polled: AtomicBool,
    pub(super) sleeper: Sleeper,
    /// The number of empty polls since the thread was parked.
    polls: Polls,
    /// The sessions, sorted by their IDs.
    sessions: RwLock<Vec<Arc<Session>>>,
    routes: Routes,
    listeners: Mutex<Vec<Listener>>,
    pub(super) thread: fn() -> &'static Reactor,
    pub(super) sockets: OnceLock<SocketSet>,
    /// The sessions that the other process has closed, and that the thread has to end.
    pub(super) closed: Mutex<Vec<Arc<Session>>>,
    pub(super) has_closed: AtomicBool,
    last_id: AtomicU64,
    pub(super) unsettled: Unsettled,
}

/// A block that belongs to this process.
#[derive(Debug)]
struct Listener {
    id: u64,
    block: u32,
    socket: Descriptor,
}

impl Peers {
    pub(crate) const fn new(deliver: &'static dyn Deliver, thread: fn() -> &'static Reactor) -> Self {
        Self {
            deliver,
            thread,
            groups: Groups::new(),
            has_sessions: AtomicBool::new(false),
            polled: AtomicBool::new(false),
            sleeper: Sleeper(AtomicU8::new(Sleep::No as u8)),
            polls: Polls::new(),
            sessions: RwLock::new(Vec::new()),
            routes: Routes::new(),
            listeners: Mutex::new(Vec::new()),
            sockets: OnceLock::new(),
            closed: Mutex::new(Vec::new()),
            has_closed: AtomicBool::new(false),
            last_id: AtomicU64::new(SOCKETS),
            unsettled: Unsettled::new(),
        }
    }

    /// Claims a block. When the first block is claimed, the thread begins to serve the peers.
    pub(super) fn claim(&'static self) -> Result<u32, Errno> {
        let mut listeners = unpoisoned(self.listeners.lock());
        let sockets = self.start()?;
        let (block, socket) = block::claim()?;
        let id = self.id();
        sockets.place.watch(&socket, id, EventFlags::IN)?;
        listeners.push(Listener { id, block, socket });
        Ok(block)
    }

    pub(super) fn first_block(&self) -> Option<u32> {
        unpoisoned(self.listeners.lock()).first().map(|listener| listener.block)
    }

    /// Returns the session with the process that owns this block, unless it is this process.
    pub(super) fn session_with(&'static self, block: u32) -> Option<Arc<Session>> {
        self.routes.find(self, block)
    }

    /// See [`Routes::open`].
    pub(super) fn open(&'static self, block: u32) -> Result<(), Errno> {
        self.routes.open(self, block)
    }

    pub(super) fn has_block(&self, block: u32) -> bool {
        unpoisoned(self.listeners.lock()).iter().any(|listener| listener.block == block)
    }

    /// Returns a new ID for events of the thread.
    pub(super) fn id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn is_full(&self) -> bool {
        unpoisoned(self.sessions.read()).len() >= MAX_SESSIONS
    }

    /// Adds a session.
    pub(super) fn enter(&self, session: &Arc<Session>) -> Result<(), Errno> {
        let mut sessions = unpoisoned(self.sessions.write());
        if sessions.len() >= MAX_SESSIONS {
            return Err(Errno::MFILE);
        }
        // The sessions are sorted by their IDs, but several threads may add sessions in another order.
        let place = sessions.partition_point(|other| other.id < session.id);
        sessions.insert(place, Arc::clone(session));
        let sockets = self.sockets.get().ok_or(Errno::NXIO);
        let flags = EventFlags::IN | EventFlags::RDHUP;
        if let Err(error) = sockets.and_then(|sockets| sockets.add(&session.socket, session.id, flags)) {
            sessions.remove(place);
            return Err(error);
        }
        self.has_sessions.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Removes a session that has ended.
    pub(super) fn forget(&self, session: &Session) {
        if let Some(sockets) = self.sockets.get() {
            sockets.remove(&session.socket);
        }
        let mut sessions = unpoisoned(self.sessions.write());
        sessions.retain(|other| other.id != session.id);
        if sessions.is_empty() {
            self.has_sessions.store(false, Ordering::Relaxed);
        }
        drop(sessions);
        self.routes.forget(session);
    }

    pub(super) fn session(&self, id: u64) -> Option<Arc<Session>> {
        let sessions = unpoisoned(self.sessions.read());
        let place = sessions.binary_search_by_key(&id, |session| session.id).ok()?;
        sessions.get(place).cloned()
    }

    /// Calls `each` with every session. `each` must not call QPs.
    pub(super) fn each(&self, each: impl FnMut(&Arc<Session>)) {
        unpoisoned(self.sessions.read()).iter().for_each(each);
    }

    /// Serves every session that is ready. No lock is held while a session is served. Returns whether any session had
    /// work.
    pub(super) fn serve(&self) -> bool {
        let mut has_found = false;
        let mut place = 0;
        while let Some((found, session)) = self.next_ready(place) {
            has_found |= session.serve();
            place = found + 1;
        }
        has_found
    }

    /// Receives all responses that have arrived on any session.
    pub(super) fn serve_responses(&self) {
        self.serve_where(Session::has_responses);
    }

    /// Whether a QP has responses that it has not handled yet. The caller must call
    /// [`serve_responses`](Self::serve_responses) first.
    #[inline]
    pub(super) fn has_unsettled(&self) -> bool {
        self.unsettled.has_any(|number| self.deliver.is_settled(number))
    }

    /// Waits, with a time limit, until the responses received so far have completed their requests. The only lock that
    /// the caller may hold is the receiving lock of a session that receives requests.
    pub(super) fn settle(&self) {
        self.serve_responses();
        while self.has_unsettled() {
            thread::sleep(SHORT_WAIT);
        }
    }

    /// Receives all packets that have arrived. The caller must hold no lock.
    pub(super) fn serve_all(&self) {
        self.settle();
        self.serve_where(Session::has_undelivered);
    }

    fn serve_where(&self, wanted: impl Fn(&Session) -> bool) {
        let mut last = 0;
        loop {
            // No lock is held while a session is served, because a reply may open a session. Meanwhile sessions may
            // end, so the search continues after the ID, not at an index.
            let next = {
                let sessions = unpoisoned(self.sessions.read());
                let place = sessions.partition_point(|session| session.id <= last);
                sessions.iter().skip(place).find(|session| wanted(session)).map(Arc::clone)
            };
            let Some(session) = next else { return };
            session.serve_all();
            last = session.id;
        }
    }

    /// Finds the first session that is ready, starting at the index `from`. Returns `None` if no session is ready, or
    /// if the list is being changed.
    fn next_ready(&self, from: usize) -> Option<(usize, Arc<Session>)> {
        let sessions = match self.sessions.try_read() {
            Ok(sessions) => sessions,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let place = sessions.iter().skip(from).position(|session| session.is_ready())? + from;
        Some((place, Arc::clone(sessions.get(place)?)))
    }

    /// Calls `call` with the listener that has this ID.
    pub(super) fn listener<T>(&self, id: u64, call: impl FnOnce(&Descriptor) -> T) -> Option<T> {
        let listeners = unpoisoned(self.listeners.lock());
        listeners.iter().find(|listener| listener.id == id).map(|listener| call(&listener.socket))
    }

    /// Calls `each` with every listener and its ID.
    pub(super) fn each_listener(&self, mut each: impl FnMut(u64, &Descriptor)) {
        unpoisoned(self.listeners.lock()).iter().for_each(|listener| each(listener.id, &listener.socket));
    }

    /// Serves the sessions when a program has polled and found no completion. Returns whether any work was done.
    #[inline]
    pub(super) fn progress(&self) -> bool {
        self.has_sessions.load(Ordering::Relaxed) && self.polled()
    }

    fn polled(&self) -> bool {
        // The flag is read before it is written, because all polling threads share its cache line.
        if !self.sleeper.sleeps(Sleep::UntilPolled) {
            if !self.has_polled() {
                self.polled.store(true, Ordering::Relaxed);
            }
        } else if self.polls.count().is_eq() {
            self.polled.store(true, Ordering::Relaxed);
            if let Some(sockets) = self.sockets.get() {
                sockets.place.wake();
            }
        }
        let has_found = self.serve();
        yield_if_empty(has_found);
        has_found
    }

    /// Requests wake-ups of the thread, because a program will wait for an event instead of polling. Without this, the
    /// thread would receive packets only at its next check.
    pub(super) fn armed(&self) {
        if self.has_sessions.load(Ordering::Relaxed) {
            self.polled.store(false, Ordering::Relaxed);
            if self.sleeper.is_parked() {
                self.polls.reset();
            } else {
                // If a session is ready, the program finds its packets, because it polls once more before it waits.
                self.park(Sleep::UntilPolled);
            }
        }
    }

    /// Returns whether a program has polled since the last call, and clears the flag. The thread calls this function.
    pub(super) fn take_polled(&self) -> bool {
        self.polled.swap(false, Ordering::Relaxed)
    }

    /// Sets the flag again if the thread has cleared it too early.
    pub(super) fn set_polled(&self) {
        self.polled.store(true, Ordering::Relaxed);
    }

    /// Returns whether a program has polled, without clearing the flag.
    pub(super) fn has_polled(&self) -> bool {
        self.polled.load(Ordering::Relaxed)
    }

    /// Whether any session is ready.
    pub(super) fn is_ready(&self) -> bool {
        unpoisoned(self.sessions.read()).iter().any(|session| session.is_ready())
    }

    /// Requests wake-ups of the thread from now on. Returns `false` if a session is already ready.
    pub(super) fn park(&self, sleep: Sleep) -> bool {
        self.polls.reset();
        let sessions = unpoisoned(self.sessions.read());
        let park = || sessions.iter().for_each(|session| session.park());
        self.sleeper.park(sleep, park, || sessions.iter().any(|session| session.is_ready()))
    }

    pub(super) fn unpark(&self) {
        self.sleeper.unpark();
    }
}

impl Sockets for Peers {
    fn attend(&self) -> Option<BorrowedFd<'_>> {
        self.sockets.get().filter(|_| self.has_sessions.load(Ordering::Relaxed))?.attend()
    }

    fn serve(&self) -> bool {
        let Some(sockets) = self.sockets.get() else { return false };
        sockets.served();
        self.handle_sessions(sockets);
        let mut has_found = false;
        for _ in 0..MAX_ROUNDS {
            has_found |= self.serve();
            if self.park(Sleep::UntilPolled) {
                return has_found;
            }
        }
        // Another thread receives packets, or they arrive without end.
        sockets.place.wake();
        has_found
    }

    fn leave(&self) {
        if let Some(sockets) = self.sockets.get() {
            sockets.release(Reason::Waits);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::super::tests::{end, part, until};
    use super::*;
    use crate::sys::socket_set::POLLING_AFTER;
    use crate::wire::packet::{BLOCK, Packet, Payload};
    use crate::wire::transport::Routes;

    #[test]
    fn requested_event_parks_the_thread_until_the_program_polls_again() {
        let end = end();
        let peers = end.host.0.get();
        peers.has_sessions.store(true, Ordering::Relaxed);
        peers.progress();
        assert!(peers.has_polled() && !peers.sleeper.is_parked());
        for _ in 0..3 {
            peers.armed();
            assert!(!peers.has_polled() && peers.sleeper.sleeps(Sleep::UntilPolled));
            // A program that waits for events polls a few times before and after each wait.
            (0..POLLING_AFTER).for_each(|_| _ = peers.progress());
            assert!(!peers.has_polled());
        }
        peers.progress();
        assert!(peers.has_polled());
    }
    #[test]
    #[cfg_attr(miri, ignore = "creates sockets")]
    fn waiting_program_receives_packets_in_place_of_the_thread() {
        let (here, there) = (end(), end());
        let number = there.host.claim().unwrap() * BLOCK;
        let peers = there.host.0.get();
        assert!(peers.attend().is_none(), "there is no session");
        here.host.claim().unwrap();
        let carrier = here.host.carrier(number).unwrap();
        let mut sent = 0;
        let mut send = || {
            carrier.put(&Packet::Part(part(number, 0)), Payload::Bytes(&[])).unwrap();
            sent += 1;
            let seen = there.seen;
            (sent, move |sent| seen.parts.lock().unwrap().len() == sent)
        };
        let (sent, has_seen) = send();
        until(|| has_seen(sent));

        let descriptor = peers.attend().unwrap();
        assert!(peers.attend().is_none(), "one thread receives packets");
        // The thread may still be awake and receive the first packets.
        let is_served = (0..1000).any(|_| {
            Sockets::serve(peers);
            let (sent, has_seen) = send();
            let mut polls = [libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
            // SAFETY: the array is live.
            let found = unsafe { libc::poll(polls.as_mut_ptr(), 1, 100) };
            let is_served = found == 1 && Sockets::serve(peers);
            until(|| has_seen(sent));
            is_served
        });
        assert!(is_served);

        peers.leave();
        assert!(peers.attend().is_some());
        peers.leave();
        let (sent, has_seen) = send();
        until(|| has_seen(sent));
    }

    #[test]
    #[cfg_attr(miri, ignore = "creates sockets")]
    fn waiting_program_ends_a_session_that_the_other_process_has_closed() {
        let (here, there) = (end(), end());
        let number = there.host.claim().unwrap() * BLOCK;
        here.host.claim().unwrap();
        let carrier = here.host.carrier(number).unwrap();
        carrier.put(&Packet::Part(part(number, 0)), Payload::Bytes(&[])).unwrap();
        let peers = there.host.0.get();
        until(|| !there.seen.parts.lock().unwrap().is_empty());
        peers.attend().unwrap();
        here.host.0.get().each(|session| _ = rustix::net::shutdown(&session.socket, rustix::net::Shutdown::Both));
        until(|| {
            Sockets::serve(peers);
            there.seen.lost.load(Ordering::SeqCst) == 1
        });
        assert!(!peers.has_sessions.load(Ordering::Relaxed));
        peers.leave();
    }
}
