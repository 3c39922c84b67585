//! The thread that takes in what comes while the program does not poll, and notices who comes and goes.
//!
//! While programs poll, it only looks each millisecond, and nobody rings for it. When it sees that nobody has polled since, it
//! asks all others to ring (it is parked), looks once more, and sleeps.
//!
//! A program may poll its queues now and then and wait elsewhere in between, such as for a byte of its memory that a peer
//! writes. What comes meanwhile would lie until the next look. Where a look finds that, everybody is to ring for a time, whether
//! the program polls or not.

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

/// How often it looks while programs poll.
const TICK: Duration = Duration::from_millis(1);
/// How long it looks after there was something, before it sleeps: an answer to what it did may be on its way.
const LINGER: Duration = Duration::from_micros(20);
/// Who polls takes what has come in less than this, unless it does not run.
pub(super) const MOMENT: Duration = Duration::from_micros(30);
/// How long everybody rings after something has lain, at first, and at most: twice as long each time.
const CARE: Duration = Duration::from_millis(10);
const MOST_CARE: Duration = Duration::from_secs(1);
/// How long nobody is accepted after that has failed.
const PAUSE: Duration = Duration::from_millis(100);
/// The other end is closed.
const GONE: epoll::EventFlags = epoll::EventFlags::HUP.union(epoll::EventFlags::RDHUP).union(epoll::EventFlags::ERR);
/// What `wake` is known by.
pub(super) const WAKE: u64 = 0;

/// What others of the process need of it.
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

    /// Wakes the thread.
    pub(super) fn wake(&self) {
        // It fails only where a wake is pending already.
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

/// The thread's own.
#[derive(Debug)]
pub(super) struct Thread {
    peers: &'static Peers,
    reactor: &'static Reactor,
    waiting: Waiting,
    /// Nobody is accepted until then.
    pause: Option<Instant>,
    linger: Duration,
    /// Everybody rings until then, and for how long that was.
    care: Option<Instant>,
    care_time: Duration,
}

impl Thread {
    pub(super) fn new(peers: &'static Peers, reactor: &'static Reactor) -> Self {
        // Where there are hardly more cores than programs, it would stand in their way.
        let has_cores = thread::available_parallelism().is_ok_and(|count| count.get() > 2);
        let linger = if has_cores { LINGER } else { Duration::ZERO };
        Self { peers, reactor, waiting: Waiting::default(), pause: None, linger, care: None, care_time: CARE }
    }

    /// For ever, as the process may need it again.
    pub(super) fn run(mut self) {
        // When there was something last.
        let mut last: Option<Instant> = None;
        loop {
            let cares = self.cares();
            if self.peers.serve() {
                if cares {
                    self.peers.take_polled();
                }
                last = self.lingers_from_now();
                self.sleep(Some(Duration::ZERO));
            } else if !cares && self.peers.take_polled() {
                self.peers.each(|session| session.unpark());
                self.sleep(Some(TICK));
                self.look_what_lies();
            } else if last.is_some_and(|last| last.elapsed() < self.linger) && !self.peers.has_polled() {
                std::hint::spin_loop();
            } else {
                last = self.park(if cares { Sleep::UntilRung } else { Sleep::UntilPolled });
            }
        }
    }

    /// Whether everybody is to ring, though programs may poll.
    fn cares(&mut self) -> bool {
        let cares = self.care.is_some_and(|until| Instant::now() < until);
        if !cares {
            self.care = None;
        }
        cares
    }

    /// Whether something lies there that no program takes.
    fn look_what_lies(&mut self) {
        let mut lies = self.peers.is_ready();
        if lies {
            let polled = self.peers.take_polled();
            self.sleep(Some(MOMENT));
            lies = self.peers.is_ready() && !self.peers.has_polled();
            if polled && !lies {
                self.peers.polled_too();
            }
        }
        if lies {
            self.care = Some(Instant::now() + self.care_time);
            self.care_time = (self.care_time * 2).min(MOST_CARE);
        } else {
            self.care_time = (self.care_time / 2).max(CARE);
        }
    }

    /// Sleeps until somebody rings or polls; when it woke, where it lingers.
    fn park(&mut self, sleep: Sleep) -> Option<Instant> {
        if self.peers.park(sleep) {
            let guests = if self.waiting.is_empty() { None } else { self.waiting.look(Instant::now()) };
            let until = guests.into_iter().chain(self.pause).chain(self.care).min();
            self.sleep(until.map(|until| until.saturating_duration_since(Instant::now())));
        } else if !self.peers.serve() {
            // Another thread is at what is there.
            self.sleep(Some(MOMENT));
        }
        self.peers.unpark();
        self.lingers_from_now()
    }

    /// Now, where the clock is to be looked at: there are machines on which that is a system call.
    fn lingers_from_now(&self) -> Option<Instant> {
        (!self.linger.is_zero()).then(Instant::now)
    }

    /// Waits for events, and handles them.
    fn sleep(&mut self, timeout: Option<Duration>) {
        let mut events = [const { MaybeUninit::uninit() }; 64];
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let events = match epoll::wait(&self.reactor.epoll, &mut events, timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(error) => {
                if error != Errno::INTR {
                    log::error!("cannot wait for other processes: {error}");
                    thread::sleep(PAUSE);
                }
                return;
            }
        };
        for event in events {
            let (flags, data) = (event.flags, event.data);
            self.handle(data.u64(), flags.intersects(GONE));
        }
        if self.pause.is_none() && self.waiting.is_empty() {
            return;
        }
        let now = Instant::now();
        self.waiting.look(now);
        if self.pause.is_some_and(|pause| pause <= now) {
            self.pause = None;
            self.peers.each_listener(|id, listener| {
                let _ = self.reactor.watch(listener, id);
            });
        }
    }

    fn handle(&mut self, id: u64, has_gone: bool) {
        if id == WAKE {
            let _ = rustix::io::read(&self.reactor.wake, &mut [0; 8]);
        } else if let Some(session) = self.peers.session(id) {
            self.hear(&session, has_gone);
        } else if !self.waiting.hear(self.peers, id) {
            self.accept(id);
        }
    }

    fn hear(&self, session: &Arc<Session>, has_gone: bool) {
        if has_gone {
            // In this order: a new one with the same process comes after all of this one.
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
            log::warn!("no process can be let in for {PAUSE:?}: {error}");
            self.pause = Some(Instant::now() + PAUSE);
            peers.each_listener(|_, listener| self.reactor.unwatch(listener));
        }
    }
}
