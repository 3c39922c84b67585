//! The thread that receives packets while the program does not poll. It also accepts connections, and ends the sessions
//! with processes that have ended.
//!
//! While the program polls, the thread only checks the sessions every millisecond, and other processes send no
//! wake-ups. If the program has not polled since the last check, the thread requests wake-ups from all other processes,
//! checks once more, and sleeps. It is then parked. A program that requests a completion event parks the thread at once.
//!
//! A program may poll its queues rarely and wait elsewhere, for example for a byte that a peer writes to its memory.
//! This program would then receive packets only at the next check. If a check finds packets that no poll has received,
//! the thread therefore requests wake-ups for some time, even if the program polls.
//!
//! A program that blocks until a completion event arrives receives packets in place of the thread ([`Sockets`]). This
//! saves waking the thread, which would then wake the program.
//!
//! [`Sockets`]: crate::wire::transport::Sockets

use std::mem::MaybeUninit;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::incoming::Waiting;
use super::peers::Peers;
use super::session::Session;
use super::socket;
use super::wakeup::Sleep;
use crate::sys::reactor::{PAUSE, Reactor, SOCKETS, TICK};
use crate::sys::unpoisoned;

/// How long the thread spins after it has served a session and before it sleeps, because a response may follow soon.
const SPIN_TIME: Duration = Duration::from_micros(20);
/// A program that polls receives a packet within this time, unless the scheduler has suspended the program.
pub(super) const SHORT_WAIT: Duration = Duration::from_micros(30);
/// A program that polls receives a packet within this time even if it also does other work, such as the calls of an RPC
/// server.
const LONG_WAIT: Duration = Duration::from_micros(300);
/// The shortest and the longest period for which wake-ups are forced after a check has found packets that no poll has
/// received. The period doubles with each such check.
const MIN_FORCED: Duration = Duration::from_millis(10);
const MAX_FORCED: Duration = Duration::from_secs(1);
/// The events that report that the other end is closed.
const CLOSED: epoll::EventFlags = epoll::EventFlags::HUP.union(epoll::EventFlags::RDHUP).union(epoll::EventFlags::ERR);

pub(super) fn watch_session(reactor: &Reactor, session: &Session) -> Result<(), Errno> {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
    epoll::add(&reactor.sockets, &session.socket, epoll::EventData::new_u64(session.id), flags)
}

pub(super) fn unwatch_session(reactor: &Reactor, session: &Session) {
    let _ = epoll::delete(&reactor.sockets, &session.socket);
}

impl Peers {
    /// Takes the wake-ups of the sessions, and ends the sessions that the other process has closed. The caller must hold
    /// no lock.
    pub(super) fn handle_sessions(&self, reactor: &Reactor) {
        let _handling = unpoisoned(self.handling.lock());
        let mut events = [const { MaybeUninit::uninit() }; 64];
        let events = match epoll::wait(&reactor.sockets, &mut events, Some(&Timespec::default())) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return,
            Err(error) => return rdma_mummy_sys::log!(error, "cannot wait for other processes: epoll failed: {error}"),
        };
        for event in events {
            let (id, flags) = (event.data.u64(), event.flags);
            let Some(session) = self.session(id) else { continue };
            if flags.intersects(CLOSED) {
                session.end();
                self.forget(&session);
            } else {
                socket::take_wakeups(&session.socket);
            }
        }
    }
}

/// The part of the state that only the thread uses.
#[derive(Debug)]
pub(super) struct Thread {
    peers: &'static Peers,
    reactor: &'static Reactor,
    waiting: Waiting,
    /// The time until which the thread accepts no connections.
    pause: Option<Instant>,
    spin_time: Duration,
    /// The time until which wake-ups are forced. `forced_time` is the length of this period.
    forced_until: Option<Instant>,
    forced_time: Duration,
}

impl Thread {
    pub(super) fn new(peers: &'static Peers, reactor: &'static Reactor) -> Self {
        // If there are few cores, spinning would delay the programs.
        let has_cores = thread::available_parallelism().is_ok_and(|count| count.get() > 2);
        let spin_time = if has_cores { SPIN_TIME } else { Duration::ZERO };
        Self {
            peers,
            reactor,
            waiting: Waiting::default(),
            pause: None,
            spin_time,
            forced_until: None,
            forced_time: MIN_FORCED,
        }
    }

    /// The main loop of the thread. The loop never ends, because the process may need the thread again.
    pub(super) fn run(mut self) {
        // The time at which this thread has last served a session.
        let mut last: Option<Instant> = None;
        loop {
            let is_forced = self.is_forced();
            if self.peers.serve() {
                if is_forced {
                    self.peers.take_polled();
                }
                last = self.spin_start();
                self.sleep(Some(Duration::ZERO));
            } else if !is_forced && self.peers.take_polled() {
                self.peers.unpark();
                self.peers.each(|session| session.unpark());
                self.sleep(Some(TICK));
                // If the program now waits for an event, this thread must serve the sessions.
                if !self.peers.sleeper.is_parked() {
                    self.check_unserved();
                }
            } else if last.is_some_and(|last| last.elapsed() < self.spin_time) && !self.peers.has_polled() {
                std::hint::spin_loop();
            } else {
                last = self.park(if is_forced { Sleep::UntilWoken } else { Sleep::UntilPolled });
            }
        }
    }

    /// Whether wake-ups are forced even if the program polls.
    fn is_forced(&mut self) -> bool {
        let is_forced = self.forced_until.is_some_and(|until| Instant::now() < until);
        if !is_forced {
            self.forced_until = None;
        }
        is_forced
    }

    /// Checks whether there are packets that no poll has received.
    fn check_unserved(&mut self) {
        let mut is_unserved = self.peers.is_ready();
        if is_unserved {
            let polled = self.peers.take_polled();
            self.sleep(Some(LONG_WAIT));
            // The program now waits for an event, so this thread must serve the sessions.
            if self.peers.sleeper.is_parked() {
                return;
            }
            is_unserved = self.peers.is_ready() && !self.peers.has_polled();
            if polled && !is_unserved {
                self.peers.set_polled();
            }
        }
        if is_unserved {
            self.forced_until = Some(Instant::now() + self.forced_time);
            self.forced_time = (self.forced_time * 2).min(MAX_FORCED);
        } else {
            self.forced_time = (self.forced_time / 2).max(MIN_FORCED);
        }
    }

    /// Sleeps until another process sends a wake-up or the program polls. If the thread should then spin, returns the
    /// time of the wake-up.
    fn park(&mut self, sleep: Sleep) -> Option<Instant> {
        if self.peers.park(sleep) {
            let pending = if self.waiting.is_empty() { None } else { self.waiting.close_expired(Instant::now()) };
            let until = pending.into_iter().chain(self.pause).chain(self.forced_until).min();
            self.sleep(until.map(|until| until.saturating_duration_since(Instant::now())));
        } else if !self.peers.serve() {
            // Another thread is serving the session.
            self.sleep(Some(SHORT_WAIT));
        }
        self.peers.unpark();
        self.spin_start()
    }

    /// Returns the current time if the thread should spin. Otherwise the clock is not read, because on some machines
    /// reading it is a system call.
    fn spin_start(&self) -> Option<Instant> {
        (!self.spin_time.is_zero()).then(Instant::now)
    }

    /// Waits for events and handles them.
    fn sleep(&mut self, timeout: Option<Duration>) {
        let reactor = self.reactor;
        reactor.wait(timeout, |id| self.handle(id));
        if self.pause.is_none() && self.waiting.is_empty() {
            return;
        }
        let now = Instant::now();
        self.waiting.close_expired(now);
        if self.pause.is_some_and(|pause| pause <= now) {
            self.pause = None;
            self.peers.each_listener(|id, listener| {
                let _ = self.reactor.watch(listener, id);
            });
        }
    }

    fn handle(&mut self, id: u64) {
        // This precedes the handshake of a new session with the same process, so that all packets of the old session
        // are delivered before those of the new one.
        self.peers.handle_sessions(self.reactor);
        if id != SOCKETS && !self.waiting.handle_handshake(self.peers, id) {
            self.accept(id);
        }
    }

    fn accept(&mut self, id: u64) {
        let (waiting, peers) = (&mut self.waiting, self.peers);
        let result = peers.listener(id, |listener| waiting.accept(peers, listener));
        if let Some(Err(error)) = result {
            rdma_mummy_sys::log!(warn, "cannot accept other processes for {PAUSE:?}: {error}");
            self.pause = Some(Instant::now() + PAUSE);
            peers.each_listener(|_, listener| self.reactor.unwatch(listener));
        }
    }
}
