//! How the thread receives packets while the program does not poll. It also accepts connections, and ends the sessions
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

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use std::{mem, thread};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::incoming::Waiting;
use super::peers::{Peers, SHORT_WAIT};
use super::socket;
use super::wakeup::Sleep;
use crate::sys::socket_set::{Expectation, SOCKETS, SocketSet, TICK};
use crate::sys::thread::{Next, PAUSE, Task};
use crate::sys::unpoisoned;

/// How long the thread spins after it has served a session and before it sleeps, because a response may follow soon.
const SPIN_TIME: Duration = Duration::from_micros(20);
/// How long a program that has polled since the previous tick may leave packets to this thread's next look.
const LOOK_TIME: Duration = Duration::from_micros(300);
/// The shortest and the longest period for which wake-ups are forced after a check has found packets that no poll has
/// received. The period doubles with each such check.
const MIN_FORCED: Duration = Duration::from_millis(10);
const MAX_FORCED: Duration = Duration::from_secs(1);
/// The events that report that the other end is closed.
const CLOSED: EventFlags = EventFlags::HUP.union(EventFlags::RDHUP).union(EventFlags::ERR);

impl Peers {
    /// Begins to be served by the thread. The caller must hold the lock of the listeners.
    pub(super) fn start(&'static self) -> Result<&'static SocketSet, Errno> {
        SocketSet::start(&self.sockets, (self.thread)(), |sockets| Box::new(Turns::new(self, sockets)))
    }

    /// Takes the wake-ups of the sessions, and leaves the sessions that the other process has closed to the thread.
    pub(super) fn handle_sessions(&self, sockets: &SocketSet) {
        sockets.each_ready(|id, flags| {
            let Some(session) = self.session(id) else { return };
            if flags.intersects(CLOSED) {
                // Once the session is removed, only the list leads to it.
                unpoisoned(self.closed.lock()).push(Arc::clone(&session));
                self.has_closed.store(true, Ordering::SeqCst);
                sockets.remove(&session.socket);
                sockets.place.wake();
            } else {
                socket::take_wakeups(&session.socket);
            }
        });
    }
}

/// What the thread does for the peers, and the state that only the thread uses.
pub(super) struct Turns {
    peers: &'static Peers,
    sockets: &'static SocketSet,
    waiting: Waiting,
    /// The time until which the thread accepts no connections.
    pause: Option<Instant>,
    spin_time: Duration,
    /// The time until which wake-ups are forced. `forced_time` is the length of this period.
    forced_until: Option<Instant>,
    forced_time: Duration,
    /// The time at which this thread has last served a session.
    last: Option<Instant>,
    rest: Rest,
    /// How long the thread waits if another thread is serving a session.
    busy_wait: Duration,
    expectation: Expectation,
    /// Whether there were events since the last turn. They have taken the wake-ups of the sessions, so the sessions must
    /// be served or parked again.
    has_events: bool,
}

/// Why the thread has returned from its last turn.
#[derive(Clone, Copy, Debug)]
enum Rest {
    /// It continues.
    No,
    /// The program polls.
    Tick,
    /// There were packets that no poll had received. The program may receive them in this time. The flag is set if the
    /// program had polled since the previous tick.
    Look(bool),
    Parked,
}

impl Turns {
    pub(super) fn new(peers: &'static Peers, sockets: &'static SocketSet) -> Self {
        // If there are few cores, spinning would delay the programs.
        let has_cores = thread::available_parallelism().is_ok_and(|count| count.get() > 2);
        Self {
            peers,
            sockets,
            waiting: Waiting::default(),
            pause: None,
            spin_time: if has_cores { SPIN_TIME } else { Duration::ZERO },
            forced_until: None,
            forced_time: MIN_FORCED,
            last: None,
            rest: Rest::No,
            busy_wait: SHORT_WAIT,
            expectation: Expectation::new(sockets),
            has_events: false,
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

    /// Records whether there were packets that no poll has received.
    fn count_check(&mut self, is_unserved: bool) {
        if is_unserved {
            self.forced_until = Some(Instant::now() + self.forced_time);
            self.forced_time = (self.forced_time * 2).min(MAX_FORCED);
        } else {
            self.forced_time = (self.forced_time / 2).max(MIN_FORCED);
        }
    }

    /// Ends the last rest. Returns whether the thread must rest again.
    fn end_rest(&mut self) -> bool {
        match mem::replace(&mut self.rest, Rest::No) {
            Rest::Parked => {
                self.peers.unpark();
                self.last = self.spin_start();
            }
            // If the program now waits for an event, this thread must serve the sessions.
            _ if self.peers.sleeper.is_parked() => {}
            Rest::Tick if self.peers.is_ready() => {
                self.rest = Rest::Look(self.peers.take_polled());
                return true;
            }
            Rest::Tick => self.count_check(false),
            Rest::Look(had_polled) => {
                let is_unserved = self.peers.is_ready() && !self.peers.has_polled();
                if had_polled && !is_unserved {
                    self.peers.set_polled();
                }
                self.count_check(is_unserved);
            }
            Rest::No => {}
        }
        false
    }

    /// Sleeps until another process sends a wake-up or the program polls.
    fn park(&mut self, sleep: Sleep) -> Next {
        self.rest = Rest::Parked;
        let busy_wait = mem::replace(&mut self.busy_wait, SHORT_WAIT);
        if self.peers.park(sleep) {
            self.wake_time()
        } else if self.peers.serve() {
            Next::Now
        } else {
            // Another thread is serving the session.
            self.busy_wait = (busy_wait * 2).min(TICK);
            Next::At(Instant::now() + busy_wait)
        }
    }

    /// Returns when the parked thread must look again.
    fn wake_time(&mut self) -> Next {
        let pending = if self.waiting.is_empty() { None } else { self.close_expired(Instant::now()) };
        let closed = self.peers.has_closed.load(Ordering::SeqCst).then(|| Instant::now() + TICK);
        let times = [pending, closed, self.pause, self.forced_until, self.expectation.next_look];
        Next::from(times.into_iter().flatten().min())
    }

    /// Returns the current time if the thread should spin. Otherwise the clock is not read, because on some machines
    /// reading it is a system call.
    fn spin_start(&self) -> Option<Instant> {
        (!self.spin_time.is_zero()).then(Instant::now)
    }

    /// Closes the connections whose handshake is late, and accepts connections again after a pause.
    fn check_times(&mut self) {
        if self.pause.is_none() && self.waiting.is_empty() {
            return;
        }
        let now = Instant::now();
        self.close_expired(now);
        if self.pause.is_some_and(|pause| pause <= now) && self.end_sessions() {
            let place = self.sockets.place;
            let mut are_watched = true;
            self.peers.each_listener(|id, listener| {
                // A listener that was added during the pause is watched already.
                are_watched &= matches!(place.watch(listener, id, EventFlags::IN), Ok(()) | Err(Errno::EXIST));
            });
            self.pause = (!are_watched).then(|| now + PAUSE);
        }
    }

    fn close_expired(&mut self, now: Instant) -> Option<Instant> {
        self.waiting.close_expired(self.sockets.place, now)
    }

    /// Accepts no connections for this time at least.
    fn pause(&mut self, time: Duration) {
        self.pause = self.pause.max(Some(Instant::now() + time));
        self.peers.each_listener(|_, listener| self.sockets.place.unwatch(listener));
    }

    /// Ends the sessions that the other process has closed. Until all have ended, accepts no connections, so that all
    /// packets of a session are delivered before those of a new one with the same process.
    fn end_sessions(&mut self) -> bool {
        if !self.peers.has_closed.load(Ordering::SeqCst) {
            return true;
        }
        self.peers.has_closed.store(false, Ordering::SeqCst);
        let mut closed = mem::take(&mut *unpoisoned(self.peers.closed.lock()));
        closed.retain(|session| {
            let has_ended = session.end();
            if has_ended {
                self.peers.forget(session);
            }
            !has_ended
        });
        let has_ended = closed.is_empty();
        if !has_ended {
            unpoisoned(self.peers.closed.lock()).append(&mut closed);
            self.peers.has_closed.store(true, Ordering::SeqCst);
            self.pause(TICK);
        }
        has_ended
    }

    fn accept(&mut self, id: u64) {
        let (waiting, peers, place) = (&mut self.waiting, self.peers, self.sockets.place);
        let result = peers.listener(id, |listener| waiting.accept(peers, place, listener));
        if let Some(Err(error)) = result {
            rdma_mummy_sys::log!(warn, "cannot accept other processes for {PAUSE:?}: {error}");
            self.pause(PAUSE);
        }
    }
}

impl Task for Turns {
    fn event(&mut self, id: u64) {
        self.has_events = true;
        self.peers.handle_sessions(self.sockets);
        if id == SOCKETS {
            self.expectation.woken();
        }
        let has_ended = self.end_sessions();
        if id != SOCKETS && !self.waiting.handle_handshake(self.peers, self.sockets.place, id) && has_ended {
            self.accept(id);
        }
    }

    fn turn(&mut self) -> Next {
        self.check_times();
        self.end_sessions();
        let had_events = mem::take(&mut self.has_events);
        let is_parked = matches!(self.rest, Rest::Parked) && self.peers.sleeper.is_parked() && !had_events;
        if self.expectation.look() && is_parked && !self.peers.is_ready() && !self.peers.has_polled() {
            return self.wake_time();
        }
        if self.end_rest() {
            return Next::At(Instant::now() + LOOK_TIME);
        }
        let is_forced = self.is_forced();
        if self.peers.serve() {
            if is_forced {
                self.peers.take_polled();
            }
            self.last = self.spin_start();
            Next::Now
        } else if !is_forced && self.peers.take_polled() {
            self.peers.unpark();
            self.peers.each(|session| session.unpark());
            self.rest = Rest::Tick;
            Next::At(Instant::now() + TICK)
        } else if self.last.is_some_and(|last| last.elapsed() < self.spin_time) && !self.peers.has_polled() {
            Next::Now
        } else {
            self.park(if is_forced { Sleep::UntilWoken } else { Sleep::UntilPolled })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{end, end_on, part};
    use super::*;
    use crate::sys::thread::Reactor;
    use crate::wire::packet::{BLOCK, Packet, Payload};
    use crate::wire::transport::{Routes, Sockets};

    #[test]
    #[cfg_attr(miri, ignore = "creates sockets")]
    fn listeners_are_watched_after_the_longest_pause() {
        let there = end_on(Reactor::not_started);
        there.host.claim().unwrap();
        let peers = there.host.0.get();
        let mut turns = Turns::new(peers, peers.sockets.get().unwrap());
        turns.pause(PAUSE);
        let until = turns.pause;
        turns.pause(TICK);
        assert_eq!(turns.pause, until);
        // This listener is watched during the pause.
        there.host.claim().unwrap();
        turns.pause = Some(Instant::now());
        turns.check_times();
        assert_eq!(turns.pause, None);
        let is_watched =
            |id, listener: &_| turns.sockets.place.watch(listener, id, EventFlags::IN) == Err(Errno::EXIST);
        peers.each_listener(|id, listener| assert!(is_watched(id, listener)));
    }

    /// The test makes the turns of the receiver.
    #[test]
    #[cfg_attr(miri, ignore = "creates sockets")]
    fn packet_wakes_the_thread_after_an_event_has_taken_the_wakeups() {
        let (here, there) = (end(), end_on(Reactor::not_started));
        let number = there.host.claim().unwrap() * BLOCK;
        let peers = there.host.0.get();
        let sockets = peers.sockets.get().unwrap();
        let mut turns = Turns::new(peers, sockets);
        here.host.claim().unwrap();
        let carrier = here.host.carrier(number).unwrap();
        let put = || carrier.put(&Packet::Part(part(number, 0)), Payload::Bytes(&[])).unwrap();
        let rest = |turns: &mut Turns| while matches!(turns.turn(), Next::Now) {};
        let mut listener = 0;
        peers.each_listener(|id, _| listener = id);
        turns.event(listener);
        turns.event(peers.id() - 1);
        rest(&mut turns);

        // The program waits, and a packet then wakes the thread.
        peers.attend().unwrap();
        Sockets::serve(peers);
        peers.leave();
        put();
        turns.event(SOCKETS);
        rest(&mut turns);
        assert_eq!(there.seen.parts.lock().unwrap().len(), 1);
        assert!(turns.expectation.next_look.is_some());

        // A poll receives the next packet, but leaves its wake-up.
        put();
        assert!(peers.progress());
        turns.event(listener);
        turns.expectation.next_look = Some(Instant::now());
        rest(&mut turns);
        assert!(turns.expectation.next_look.is_none() && sockets.place.is_quiet());
        put();
        assert!(!sockets.place.is_quiet());
    }
}
