//! The other processes, as this one knows them: the sessions, and who looks after them now.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::block;
use super::group::Groups;
use super::outgoing::Ways;
use super::reactor::{MOMENT, Reactor, Thread, WAKE};
use super::session::Session;
use super::wakeup::{Sleep, Sleeper};
use crate::sys::descriptor::Descriptor;
use crate::sys::{signals, unpoisoned};
use crate::wire::transport::Deliver;

/// More sessions than this are refused.
const MOST: usize = 1024;
/// So many empty polls in a row, since the thread went to sleep, are a program that polls, and not one that looks once more
/// after an event.
const POLLS: u32 = 16;

/// So many empty polls in a row of one thread, and others of the host have their turn: where there are fewer cores than programs
/// that poll, the one that is waited for may be among them.
const PATIENCE: u32 = 64;

/// How long messages wait for a thread that has answers of before to take in. It has the send queue of a queue pair for so long only if
/// the program has left it open (`ibv_wr_start`), and may itself wait for a message.
const MOST_BEHIND: Duration = Duration::from_millis(100);

thread_local! {
    /// Empty polls of this thread since something came.
    static EMPTY: Cell<u32> = const { Cell::new(0) };
}

/// The other processes, as this one knows them.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(super) deliver: &'static dyn Deliver,
    pub(super) groups: Groups,
    /// Whether there are any: all that a poll looks at where there are none.
    has_sessions: AtomicBool,
    /// A program has polled since the thread has looked at this.
    polled: AtomicBool,
    pub(super) sleeper: Sleeper,
    /// Polls since then.
    polls: AtomicU32,
    /// In the order of their ids.
    sessions: RwLock<Vec<Arc<Session>>>,
    ways: Ways,
    listeners: Mutex<Vec<Listener>>,
    reactor: OnceLock<Reactor>,
    is_running: AtomicBool,
    last_id: AtomicU64,
    behind: Mutex<Behind>,
    is_behind: AtomicBool,
}

/// Queue pairs with answers that another thread, which has the send queue, is to take in.
#[derive(Debug)]
struct Behind {
    numbers: Vec<u32>,
    since: Option<Instant>,
}

/// A block of this process.
#[derive(Debug)]
struct Listener {
    id: u64,
    block: u32,
    socket: Descriptor,
}

impl Peers {
    pub(crate) const fn new(deliver: &'static dyn Deliver) -> Self {
        Self {
            deliver,
            groups: Groups::new(),
            has_sessions: AtomicBool::new(false),
            polled: AtomicBool::new(false),
            sleeper: Sleeper(AtomicU8::new(Sleep::No as u8)),
            polls: AtomicU32::new(0),
            sessions: RwLock::new(Vec::new()),
            ways: Ways::new(),
            listeners: Mutex::new(Vec::new()),
            reactor: OnceLock::new(),
            is_running: AtomicBool::new(false),
            last_id: AtomicU64::new(WAKE),
            behind: Mutex::new(Behind { numbers: Vec::new(), since: None }),
            is_behind: AtomicBool::new(false),
        }
    }

    /// Takes a block; with the first the thread starts.
    pub(super) fn claim(&'static self) -> Result<u32, Errno> {
        let mut listeners = unpoisoned(self.listeners.lock());
        let reactor = self.start()?;
        let (block, socket) = block::claim()?;
        let id = self.id();
        reactor.watch(&socket, id)?;
        listeners.push(Listener { id, block, socket });
        Ok(block)
    }

    /// Starts the thread, where it does not run. The lock of the listeners is held.
    fn start(&'static self) -> Result<&'static Reactor, Errno> {
        let reactor = match self.reactor.get() {
            Some(reactor) => reactor,
            None => {
                let reactor = Reactor::new()?;
                self.reactor.get_or_init(|| reactor)
            }
        };
        if !self.is_running.load(Ordering::Relaxed) {
            let thread = Thread::new(self, reactor);
            let builder = thread::Builder::new().name("softrnic-peers".to_owned()).stack_size(512 << 10);
            signals::without_signals(|| builder.spawn(|| thread.run())).map_err(|_| Errno::AGAIN)?;
            self.is_running.store(true, Ordering::Relaxed);
        }
        Ok(reactor)
    }

    pub(super) fn first_block(&self) -> Option<u32> {
        unpoisoned(self.listeners.lock()).first().map(|listener| listener.block)
    }

    /// The session with the process that has this block, unless it is this one.
    pub(super) fn session_with(&'static self, block: u32) -> Option<Arc<Session>> {
        self.ways.find(self, block)
    }

    pub(super) fn has_block(&self, block: u32) -> bool {
        unpoisoned(self.listeners.lock()).iter().any(|listener| listener.block == block)
    }

    /// A number by which the thread knows something.
    pub(super) fn id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn watch(&self, descriptor: &Descriptor, id: u64) -> Result<(), Errno> {
        self.reactor.get().ok_or(Errno::NXIO)?.watch(descriptor, id)
    }

    pub(super) fn unwatch(&self, descriptor: &Descriptor) {
        if let Some(reactor) = self.reactor.get() {
            reactor.unwatch(descriptor);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        unpoisoned(self.sessions.read()).len() >= MOST
    }

    /// Adds a session.
    pub(super) fn enter(&self, session: &Arc<Session>) -> Result<(), Errno> {
        let mut sessions = unpoisoned(self.sessions.write());
        if sessions.len() >= MOST {
            return Err(Errno::MFILE);
        }
        // Another may have taken a later number and come first.
        let place = sessions.partition_point(|other| other.id < session.id);
        sessions.insert(place, Arc::clone(session));
        if let Err(error) = self.watch(&session.socket, session.id) {
            sessions.remove(place);
            return Err(error);
        }
        self.has_sessions.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Forgets a session that is over.
    pub(super) fn forget(&self, session: &Session) {
        self.unwatch(&session.socket);
        let mut sessions = unpoisoned(self.sessions.write());
        sessions.retain(|other| other.id != session.id);
        if sessions.is_empty() {
            self.has_sessions.store(false, Ordering::Relaxed);
        }
        drop(sessions);
        self.ways.forget(session);
    }

    pub(super) fn session(&self, id: u64) -> Option<Arc<Session>> {
        let sessions = unpoisoned(self.sessions.read());
        let place = sessions.binary_search_by_key(&id, |session| session.id).ok()?;
        sessions.get(place).cloned()
    }

    /// Calls `each` with every session; it calls nothing of the queue pairs.
    pub(super) fn each(&self, each: impl FnMut(&Arc<Session>)) {
        unpoisoned(self.sessions.read()).iter().for_each(each);
    }

    /// Has every session served that has something to do, with no lock held. Whether there was any.
    pub(super) fn serve(&self) -> bool {
        let mut has_found = false;
        let mut place = 0;
        while let Some((found, session)) = self.next_ready(place) {
            has_found |= session.serve();
            place = found + 1;
        }
        has_found
    }

    /// Has all answers taken in that have come.
    pub(super) fn serve_answers(&self) {
        self.serve_where(Session::has_answers);
    }

    /// A queue pair takes an answer in later.
    #[cold]
    pub(super) fn falls_behind(&self, number: u32) {
        let mut behind = unpoisoned(self.behind.lock());
        behind.since.get_or_insert_with(Instant::now);
        if !behind.numbers.contains(&number) {
            behind.numbers.push(number);
        }
        self.is_behind.store(true, Ordering::Relaxed);
    }

    /// Whether some queue pair has answers to take in that have come. Called after [`serve_answers`](Self::serve_answers).
    #[inline]
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Relaxed) && self.is_still_behind()
    }

    #[cold]
    fn is_still_behind(&self) -> bool {
        let mut behind = unpoisoned(self.behind.lock());
        behind.numbers.retain(|&number| !self.deliver.is_settled(number));
        if behind.since.is_some_and(|since| since.elapsed() > MOST_BEHIND) {
            behind.numbers.clear();
        }
        if behind.numbers.is_empty() {
            behind.since = None;
            self.is_behind.store(false, Ordering::Relaxed);
        }
        !behind.numbers.is_empty()
    }

    /// Waits, for a bounded time, until answers that have come have completed their requests. The caller has no lock.
    pub(super) fn catch_up(&self) {
        self.serve_answers();
        while self.is_behind() {
            thread::sleep(MOMENT);
        }
    }

    /// Has all taken in that has come. The caller has no lock.
    pub(super) fn serve_all(&self) {
        self.catch_up();
        self.serve_where(Session::is_behind);
    }

    fn serve_where(&self, wanted: impl Fn(&Session) -> bool) {
        let mut place = 0;
        loop {
            // No lock is held meanwhile: to be answered may mean to connect to yet another.
            let next = {
                let sessions = unpoisoned(self.sessions.read());
                let found = sessions.iter().skip(place).position(|session| wanted(session));
                found.and_then(|found| Some((place + found, Arc::clone(sessions.get(place + found)?))))
            };
            let Some((found, session)) = next else { return };
            session.serve_all();
            place = found + 1;
        }
    }

    /// The first from a place on that has something to do; none where the list is being changed.
    fn next_ready(&self, from: usize) -> Option<(usize, Arc<Session>)> {
        let sessions = match self.sessions.try_read() {
            Ok(sessions) => sessions,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let place = sessions.iter().skip(from).position(|session| session.is_ready())? + from;
        Some((place, Arc::clone(sessions.get(place)?)))
    }

    /// Calls `call` with the listener of this id.
    pub(super) fn listener<T>(&self, id: u64, call: impl FnOnce(&Descriptor) -> T) -> Option<T> {
        let listeners = unpoisoned(self.listeners.lock());
        listeners.iter().find(|listener| listener.id == id).map(|listener| call(&listener.socket))
    }

    /// Calls `each` with every listener and its id.
    pub(super) fn each_listener(&self, mut each: impl FnMut(u64, &Descriptor)) {
        unpoisoned(self.listeners.lock()).iter().for_each(|listener| each(listener.id, &listener.socket));
    }

    /// An empty poll of a program; whether there was anything to do.
    #[inline]
    pub(super) fn progress(&self) -> bool {
        self.has_sessions.load(Ordering::Relaxed) && self.polled()
    }

    fn polled(&self) -> bool {
        // Read first: all threads that poll share it.
        if !self.sleeper.sleeps(Sleep::UntilPolled) {
            if !self.has_polled() {
                self.polled.store(true, Ordering::Relaxed);
            }
        } else if self.polls.fetch_add(1, Ordering::Relaxed) == POLLS {
            self.polled.store(true, Ordering::Relaxed);
            if let Some(reactor) = self.reactor.get() {
                reactor.wake();
            }
        }
        let has_found = self.serve();
        let empty = if has_found { 0 } else { EMPTY.get() + 1 };
        EMPTY.set(empty % PATIENCE);
        if empty == PATIENCE {
            thread::yield_now();
        }
        has_found
    }

    /// The thread's: whether a program has polled since the last call.
    pub(super) fn take_polled(&self) -> bool {
        self.polled.swap(false, Ordering::Relaxed)
    }

    /// The thread's: it has taken note too early.
    pub(super) fn polled_too(&self) {
        self.polled.store(true, Ordering::Relaxed);
    }

    /// Whether it has, seen without taking note.
    pub(super) fn has_polled(&self) -> bool {
        self.polled.load(Ordering::Relaxed)
    }

    /// Whether any session has something to do.
    pub(super) fn is_ready(&self) -> bool {
        self.next_ready(0).is_some()
    }

    /// The thread's: everybody is to ring from now on. `false` where there is something to do already.
    pub(super) fn park(&self, sleep: Sleep) -> bool {
        self.polls.store(0, Ordering::Relaxed);
        let sessions = unpoisoned(self.sessions.read());
        let park = || sessions.iter().for_each(|session| session.park());
        self.sleeper.park(sleep, park, || sessions.iter().any(|session| session.is_ready()))
    }

    pub(super) fn unpark(&self) {
        self.sleeper.unpark();
    }
}
