//! A worker that several threads share. A thread that waits for an event drives the worker.
//!
//! A blocking call locks the worker and tries its operation. If the operation would block, the call first polls for
//! some time, and then sleeps on the worker's descriptor. If several threads wait, one of them sleeps on the
//! descriptor, and wakes the others when their connections have events. If no thread waits, the worker's own thread
//! sleeps on the descriptor, so that peers receive answers and wakers are called. If tasks of tokio use the worker, a
//! task drives it, so that an event wakes only the thread that needs it; the worker's own thread takes over if the
//! task makes no turns.

mod exit;
mod lock;
mod own;
mod sleep;
#[cfg(feature = "tokio")]
mod task;
#[cfg(test)]
mod tests;
mod wake;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rdma_mummy_sys::program::Held;

use crate::backend::verbs::devices;
use crate::memory::check_spare;

use super::Sleeper;
use super::event::Event;
use super::fork::{Generation, PerProcess};
use super::signals::without_signals;
use super::waiters::Awaited;
use super::{ConnectionId, Options, Transport, Worker};
use lock::Locked;
use wake::this_thread;

/// A worker with its own thread, shared by all threads of the program. Clones refer to the same worker.
///
/// The worker exists until its last handle, listener and connection are dropped. When the process ends, by a return of
/// `main` or by `exit(3)`, it waits until the peers have received what the worker has accepted, and all transfers have
/// ended, at most for the [linger time](Options::linger), and at most for a minute.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use trespass::{Acceptor, Connection, Handle, Options, Transport};
///
/// let mut options = Options::default();
/// options.transport = Transport::Tcp;
/// let handle = Handle::new(&options)?;
/// let acceptor = Acceptor::bind_on(&handle, "127.0.0.1:0")?;
/// let client = Connection::connect_on(&handle, acceptor.local_addr(), None)?;
/// println!("{}", client.stats()?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
    _alive: Arc<Alive>,
}

/// Longer spinning times do not fit into the system's clocks.
const LONGEST_SPIN: Duration = Duration::from_secs(86_400);

#[derive(Debug)]
struct Shared {
    /// The process that has created the worker.
    generation: Generation,
    core: Mutex<Core>,
    /// The worker's own thread. It is parked while calls drive the worker.
    own: OnceLock<Thread>,
    /// Ends the sleep of the worker's own thread.
    kick: Event,
    /// Wakes the call that sleeps on the descriptor.
    nudge: Arc<Event>,
    nudge_waker: Waker,
    /// The worker's descriptor, for sleeping without its lock.
    fd: OwnedFd,
    spin: Duration,
    uses_devices: bool,
    /// Whether a task of tokio drives the worker.
    has_task: AtomicBool,
    /// How many threads wait for the lock, and how many have got it after they had waited.
    wanting: AtomicU32,
    served: AtomicU32,
}

#[derive(Debug)]
struct Core {
    worker: Worker,
    /// The number of calls that wait now, and the number of all calls that have waited so far.
    waiting: u32,
    begun: u64,
    /// The number of calls that wait while other threads drive the worker.
    aside: u32,
    /// How long a call spins before it sleeps. This time is increased while sleeps are short.
    spin: Duration,
    /// Whether a call sleeps on the descriptor, and whether the worker's own thread sleeps on it.
    call_sleeps: bool,
    own_sleeps: bool,
    /// The time until which the worker's own thread last began to sleep, in milliseconds.
    own_due: u64,
    /// Whether the worker's own thread is parked until no call waits.
    own_is_away: bool,
    /// The number of turns that tasks have made, and the waker of the task while it sleeps on the descriptor.
    task_turns: u64,
    sleeping_task: Option<Waker>,
    /// The threads of the calls that wait while another call sleeps.
    parked: Vec<Thread>,
    is_over: bool,
}

/// Ends the worker's own thread.
#[derive(Debug)]
struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        if self.0.generation.is_over() {
            return;
        }
        let mut core = self.0.lock();
        core.is_over = true;
        let task = core.sleeping_task.take();
        drop(core);
        if let Some(task) = task {
            super::waiters::call(task);
        }
        self.0.unpark_own();
        self.0.kick.set();
    }
}

/// The event for which a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A message, or the end of the messages.
    Read,
    /// Space to send, the acknowledgement of everything that was sent, or a completion.
    Write,
}

/// The reason why a worker was not started.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot start a worker: {0}; raise the limits of files, threads and memory (ulimit -n, -u, -v), or use fewer workers"
)]
struct StartError(#[source] io::Error);

impl Handle {
    /// Starts a worker and its thread.
    ///
    /// # Errors
    ///
    /// The system has no descriptors, threads or memory left.
    pub fn new(options: &Options) -> io::Result<Handle> {
        check_spare()?;
        Handle::start(options).map_err(|error| {
            // For a thread that cannot be started, the system returns EAGAIN, which is no reason to try again soon.
            let kind =
                if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::OutOfMemory } else { error.kind() };
            io::Error::new(kind, StartError(error))
        })
    }

    fn start(options: &Options) -> io::Result<Handle> {
        let worker = Worker::new(options)?;
        let core = Core {
            worker,
            waiting: 0,
            begun: 0,
            aside: 0,
            spin: options.spin.min(LONGEST_SPIN),
            call_sleeps: false,
            own_sleeps: false,
            own_due: 0,
            own_is_away: false,
            task_turns: 0,
            sleeping_task: None,
            parked: Vec::new(),
            is_over: false,
        };
        let fd = core.worker.fd().try_clone_to_owned()?;
        let (kick, nudge) = (Event::new()?, Arc::new(Event::new()?));
        let nudge_waker = Waker::from(Arc::clone(&nudge));
        let (core, own) = (Mutex::new(core), OnceLock::new());
        let (spin, has_task) = (options.spin.min(LONGEST_SPIN), AtomicBool::new(false));
        let (wanting, served) = (AtomicU32::new(0), AtomicU32::new(0));
        let generation = Generation::this();
        let uses_devices = options.transport != Transport::Tcp;
        let shared = Arc::new(Shared {
            generation,
            core,
            own,
            kick,
            nudge,
            nudge_waker,
            fd,
            spin,
            uses_devices,
            has_task,
            wanting,
            served,
        });
        let driven = Arc::clone(&shared);
        let builder = thread::Builder::new().name("trespass".to_owned());
        let own = without_signals(|| builder.spawn(move || driven.drive()))?;
        shared.own.get_or_init(|| own.thread().clone());
        shared.finish_at_exit();
        Ok(Handle { _alive: Arc::new(Alive(Arc::clone(&shared))), shared })
    }

    /// Returns the default worker of the process. The first call starts it, with default options.
    ///
    /// # Errors
    ///
    /// See [`Handle::new`].
    pub fn global() -> io::Result<Handle> {
        static GLOBAL: PerProcess<Mutex<Option<Handle>>> = PerProcess::new(Mutex::new(None), Box::default);
        // A fork may happen while another thread holds the lock.
        Generation::this();
        let _held = Held::new();
        let mut global = GLOBAL.get().lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = &*global {
            return Ok(handle.clone());
        }
        Ok(global.insert(Handle::new(&Options::default())?).clone())
    }

    /// Loads the libraries of RDMA and lists the devices, unless [`Options::transport`] excludes RDMA. The first address
    /// would do this otherwise. It takes milliseconds, in which a program may wait for something else.
    pub fn prepare(&self) {
        if self.shared.uses_devices {
            // The first address reports an error.
            _ = devices();
        }
    }

    /// Runs a closure with the worker, without waiting for an event. This fails only in a child of the worker's process.
    #[inline]
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Worker) -> T) -> io::Result<T> {
        self.shared.generation.check()?;
        let mut core = self.shared.lock();
        let result = act(&mut core.worker);
        core.worker.flush();
        Ok(result)
    }

    /// Tries an operation, and retries it once after a turn, without waiting.
    pub(crate) fn try_now<T>(&self, attempt: impl FnMut(&mut Worker) -> io::Result<T>) -> io::Result<T> {
        self.try_or_wake(true, attempt, |_, _| {})
    }

    /// Tries an operation, and retries it once after a turn: if `turns` is set, or no task drives the worker. Then `after`
    /// gets the result. If the operation would still block, it makes the worker wake the caller.
    pub(crate) fn try_or_wake<T>(
        &self,
        turns: bool,
        mut attempt: impl FnMut(&mut Worker) -> io::Result<T>,
        after: impl FnOnce(&mut Worker, &io::Result<T>),
    ) -> io::Result<T> {
        self.shared.generation.check()?;
        let mut core = self.shared.lock();
        let mut result = attempt(&mut core.worker);
        let turns = would_block(&result) && (turns || !self.shared.has_task.load(Ordering::Relaxed));
        if turns {
            core.worker.turn();
            result = attempt(&mut core.worker);
        }
        // A turn of `rearm_or_log` wakes only callers that are registered.
        after(&mut core.worker, &result);
        if turns {
            core.rearm_or_log();
        }
        core.worker.flush();
        result
    }

    /// Whether both handles refer to the same worker.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns the worker's descriptor.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.shared.fd.as_fd()
    }

    /// Repeats an operation until it does not return `WouldBlock`, or until the deadline passes (`TimedOut`).
    #[inline]
    pub(crate) fn wait<T>(
        &self,
        id: ConnectionId,
        what: Awaited,
        deadline: Option<Instant>,
        mut attempt: impl FnMut(&mut Worker) -> io::Result<T>,
    ) -> io::Result<T> {
        self.shared.generation.check()?;
        let mut core = self.shared.lock();
        match attempt(&mut core.worker) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => {
                core.worker.flush();
                return result;
            }
        }
        core.waiting += 1;
        core.begun += 1;
        let (mut core, result) = self.shared.drive_until(core, id, what, deadline, attempt);
        core.waiting -= 1;
        core.worker.flush();
        if !core.call_sleeps
            && let Some(thread) = core.parked.pop()
        {
            thread.unpark();
        }
        if core.waiting == 0 && core.own_is_away {
            self.shared.unpark_own();
        }
        core.rearm_or_log();
        result
    }

    /// Repeats an operation while other threads drive the worker. Calls that tolerate a delay use this function.
    pub(crate) fn wait_aside<T>(
        &self,
        deadline: Option<Instant>,
        mut attempt: impl FnMut(&mut Worker, &Waker) -> io::Result<T>,
    ) -> io::Result<T> {
        self.shared.generation.check()?;
        let waker = this_thread();
        loop {
            let mut core = self.shared.lock();
            let result = attempt(&mut core.worker, &waker);
            core.worker.flush();
            match result {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            core.aside += 1;
            let is_driven = core.waiting != 0;
            drop(core);
            if !is_driven {
                self.shared.unpark_own();
            }
            match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => thread::park(),
                Some(Duration::ZERO) => {
                    self.shared.lock().aside -= 1;
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Some(left) => thread::park_timeout(left),
            }
            self.shared.lock().aside -= 1;
        }
    }
}

impl Core {
    /// Calls [`rearm`](Self::rearm) after an operation whose result must not be lost. If `rearm` fails, the thread that
    /// sleeps next gets the error.
    fn rearm_or_log(&mut self) {
        if let Err(error) = self.rearm() {
            rdma_mummy_sys::log!(warn, "cannot request a wake-up of the worker: {error}");
        }
    }

    /// Requests a wake-up again if a thread sleeps, because a poll may have consumed the event that would wake it.
    fn rearm(&mut self) -> io::Result<()> {
        while (self.call_sleeps || self.own_sleeps || self.sleeping_task.is_some()) && !self.worker.arm_backends()? {
            self.worker.turn();
        }
        Ok(())
    }
}

impl Shared {
    fn unpark_own(&self) {
        if let Some(own) = self.own.get() {
            own.unpark();
        }
    }

    /// Spins, then sleeps, until the attempt no longer returns `WouldBlock`.
    fn drive_until<'c, T>(
        &'c self,
        mut core: Locked<'c>,
        id: ConnectionId,
        what: Awaited,
        deadline: Option<Instant>,
        mut attempt: impl FnMut(&mut Worker) -> io::Result<T>,
    ) -> (Locked<'c>, io::Result<T>) {
        let mut spin_until = Instant::now() + core.spin;
        let mut turns = 0;
        loop {
            let count = core.worker.turn();
            match attempt(&mut core.worker) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return (core, result),
            }
            let has_passed = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if count != 0 && !has_passed() {
                if core.worker.has_woken() {
                    core = self.relock(core);
                }
                core = self.take_turns(core, &mut turns);
                continue;
            }
            turns = 0;
            let now = Instant::now();
            let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(now));
            if left.is_zero() {
                return (core, Err(io::ErrorKind::TimedOut.into()));
            }
            if now < spin_until {
                core = self.relock(core);
                continue;
            }
            let slept = match core.call_sleeps {
                true => self.park(core, id, what, left),
                false => self.sleep(core, id, what, left),
            };
            match slept {
                (again, Ok(())) => core = again,
                (again, Err(error)) => return (again, Err(error)),
            }
            spin_until = Instant::now() + core.spin;
        }
    }
}

pub(crate) fn would_block<T>(result: &io::Result<T>) -> bool {
    matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}
