//! The thread that receives packets while no program polls, accepts connections, and ends sessions of ended processes.
//!
//! While programs poll, the thread only checks every millisecond, and other processes send no wake-ups. If no program
//! has polled since the last check, the thread requests wake-ups from all peers (it is parked), checks once more, and
//! sleeps.
//!
//! A program may poll its queues rarely and wait elsewhere, for example for a byte that a peer writes to its memory.
//! The packets for this program would then arrive only with the next check. If a check finds unserved packets, the
//! thread requests wake-ups for some time, even if programs poll.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, Timespec, epoll};
use rustix::io::Errno;

use super::incoming::Waiting;
use super::peers::Peers;
use super::session::Session;
use super::socket;
use super::wakeup::Sleep;
use crate::sys::descriptor::Descriptor;

/// Interval of checks while programs poll.
const TICK: Duration = Duration::from_millis(1);
/// How long the thread spins after serving a session, before it sleeps: a response may follow.
const SPIN_TIME: Duration = Duration::from_micros(20);
/// Time within which a polling program receives a packet, unless the scheduler has suspended the program.
pub(super) const SHORT_WAIT: Duration = Duration::from_micros(30);
/// Shortest and longest period of forced wake-ups after a check found unserved packets. The period doubles with each
/// such check.
const MIN_FORCED: Duration = Duration::from_millis(10);
const MAX_FORCED: Duration = Duration::from_secs(1);
/// Pause after an error, before connections are accepted again.
const PAUSE: Duration = Duration::from_millis(100);
/// The other end is closed.
const CLOSED: epoll::EventFlags = epoll::EventFlags::HUP.union(epoll::EventFlags::RDHUP).union(epoll::EventFlags::ERR);
/// The ID of `wake`.
pub(super) const WAKE: u64 = 0;

/// The part of the thread's state that other threads use.
#[derive(Debug)]
pub(super) struct Reactor {
    epoll: Descriptor,
    wake: Descriptor,
}

impl Reactor {
    pub(super) fn new() -> Result<Self, Errno> {
        let epoll = Descriptor::open(|| epoll::create(epoll::CreateFlags::CLOEXEC))?;
        let wake = Descriptor::open(|| rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))?;
        let reactor = Self { epoll, wake };
        reactor.watch(&reactor.wake, WAKE)?;
        Ok(reactor)
    }

    pub(super) fn wake(&self) {
        // The write fails only if a wake-up is already pending.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    pub(super) fn watch(&self, descriptor: &Descriptor, id: u64) -> Result<(), Errno> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(id), flags)
    }

    pub(super) fn unwatch(&self, descriptor: &Descriptor) {
        let _ = epoll::delete(&self.epoll, descriptor);
    }
}

/// The state of the thread itself.
#[derive(Debug)]
pub(super) struct Thread {
    peers: &'static Peers,
    reactor: &'static Reactor,
    waiting: Waiting,
    /// No connection is accepted until this time.
    pause: Option<Instant>,
    spin_time: Duration,
    /// Wake-ups are forced until this time, and the length of that period.
    forced_until: Option<Instant>,
    forced_time: Duration,
}

impl Thread {
    pub(super) fn new(peers: &'static Peers, reactor: &'static Reactor) -> Self {
        // With few cores, spinning would delay the programs.
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
        // The time at which a session was last served.
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
                self.peers.each(|session| session.unpark());
                self.sleep(Some(TICK));
                self.check_unserved();
            } else if last.is_some_and(|last| last.elapsed() < self.spin_time) && !self.peers.has_polled() {
                std::hint::spin_loop();
            } else {
                last = self.park(if is_forced { Sleep::UntilWoken } else { Sleep::UntilPolled });
            }
        }
    }

    /// Whether wake-ups are forced, although programs may poll.
    fn is_forced(&mut self) -> bool {
        let is_forced = self.forced_until.is_some_and(|until| Instant::now() < until);
        if !is_forced {
            self.forced_until = None;
        }
        is_forced
    }

    /// Checks for packets that no program receives.
    fn check_unserved(&mut self) {
        let mut is_unserved = self.peers.is_ready();
        if is_unserved {
            let polled = self.peers.take_polled();
            self.sleep(Some(SHORT_WAIT));
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

    /// Sleeps until a wake-up or a poll. Returns the wake-up time if the thread should then spin.
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

    /// The current time, if needed: on some machines, reading the clock is a system call.
    fn spin_start(&self) -> Option<Instant> {
        (!self.spin_time.is_zero()).then(Instant::now)
    }

    /// Waits for events and handles them.
    fn sleep(&mut self, timeout: Option<Duration>) {
        let mut events = [const { MaybeUninit::uninit() }; 64];
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let events = match epoll::wait(&self.reactor.epoll, &mut events, timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(error) => {
                if error != Errno::INTR {
                    log::error!("cannot wait for other processes: epoll failed: {error}");
                    thread::sleep(PAUSE);
                }
                return;
            }
        };
        for event in events {
            let (flags, data) = (event.flags, event.data);
            self.handle(data.u64(), flags.intersects(CLOSED));
        }
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

    fn handle(&mut self, id: u64, is_closed: bool) {
        if id == WAKE {
            let _ = rustix::io::read(&self.reactor.wake, &mut [0; 8]);
        } else if let Some(session) = self.peers.session(id) {
            self.handle_session(&session, is_closed);
        } else if !self.waiting.handle_handshake(self.peers, id) {
            self.accept(id);
        }
    }

    fn handle_session(&self, session: &Arc<Session>, is_closed: bool) {
        if is_closed {
            // Handles events in this order, so that packets of a new session with the same process follow all packets
            // of the old one.
            session.end();
            self.peers.forget(session);
        } else {
            socket::take_wakeups(&session.socket);
        }
    }

    fn accept(&mut self, id: u64) {
        let (waiting, peers) = (&mut self.waiting, self.peers);
        let result = peers.listener(id, |listener| waiting.accept(peers, listener));
        if let Some(Err(error)) = result {
            log::warn!("cannot accept other processes for {PAUSE:?}: {error}");
            self.pause = Some(Instant::now() + PAUSE);
            peers.each_listener(|_, listener| self.reactor.unwatch(listener));
        }
    }
}
