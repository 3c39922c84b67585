//! The thread of softrnic. It waits for the descriptors and the times of several [tasks](Task), such as a transport or
//! the alarms of QPs, and calls the tasks that have work.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};
use std::{fmt, io, mem, thread};

use rdma_mummy_sys::program::Held;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;

use super::descriptor::Descriptor;
use super::fork::PerProcess;
use super::{signals, unpoisoned};

/// How long the thread waits after an error before it tries again.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
/// The maximum number of events that one call of epoll returns.
const MAX_EVENTS: usize = 64;
/// The number of the wake-ups. The numbers of the tasks are lower.
const WAKE: u64 = 7;
/// How many of the low bits of an event are the number of its task.
const SLOT_BITS: u32 = WAKE.trailing_ones();

static REACTOR: PerProcess<Reactor> = PerProcess::new(Reactor::new(), || Box::new(Reactor::new()));

/// A part of softrnic whose work the thread does. A call that waits delays all other tasks.
pub(crate) trait Task: Send {
    /// Handles an event of the descriptor that the task watches with this ID.
    fn event(&mut self, _id: u64) {}

    /// Does the work that is due. The thread calls this function after events and wake-ups of the task, and when the
    /// last call has asked for it.
    fn turn(&mut self) -> Next;
}

/// When the thread calls a task again that has neither events nor wake-ups.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    Never,
    At(Instant),
    /// After the other tasks.
    Now,
}

impl From<Option<Instant>> for Next {
    fn from(time: Option<Instant>) -> Self {
        time.map_or(Self::Never, Self::At)
    }
}

/// The thread and its tasks.
#[derive(Debug)]
pub(crate) struct Reactor {
    waits: OnceLock<Waits>,
    tasks: Mutex<Tasks>,
}

#[derive(Debug)]
struct Tasks {
    is_running: bool,
    count: u64,
    /// The tasks that the thread does not serve yet.
    new: Vec<Served>,
}

struct Served {
    task: Box<dyn Task>,
    next: Next,
}

/// What the thread waits for.
#[derive(Debug)]
struct Waits {
    /// The descriptor on which the thread waits. It contains all others.
    all: Descriptor,
    wake: Descriptor,
    /// The tasks that were woken, as a bit for each.
    woken: AtomicU64,
}

/// The place of a task in the thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    waits: &'static Waits,
    slot: u64,
}

impl Reactor {
    const fn new() -> Self {
        Self { waits: OnceLock::new(), tasks: Mutex::new(Tasks { is_running: false, count: 0, new: Vec::new() }) }
    }

    pub(crate) fn of_process() -> &'static Self {
        REACTOR.get()
    }

    /// Returns a thread for one test.
    #[cfg(test)]
    pub(crate) fn of_test() -> &'static Self {
        Box::leak(Box::new(Self::new()))
    }

    /// Returns a thread for one test that is never started.
    #[cfg(test)]
    pub(crate) fn not_started() -> &'static Self {
        let reactor = Self::of_test();
        unpoisoned(reactor.tasks.lock()).is_running = true;
        reactor
    }

    /// Adds a task, which `make` creates. The first task starts the thread.
    ///
    /// # Errors
    ///
    /// No descriptor or thread is available, or the error of `make`. The caller may try again later.
    pub(crate) fn add(&'static self, make: impl FnOnce(Place) -> Result<Box<dyn Task>, Errno>) -> Result<Place, Errno> {
        self.add_by(make, |run| {
            let builder = thread::Builder::new().name("softrnic".to_owned()).stack_size(512 << 10);
            signals::without_signals(|| builder.spawn(run)).map(drop)
        })
    }

    fn add_by(
        &'static self,
        make: impl FnOnce(Place) -> Result<Box<dyn Task>, Errno>,
        spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<()>,
    ) -> Result<Place, Errno> {
        let mut tasks = unpoisoned(self.tasks.lock());
        let waits = match self.waits.get() {
            Some(waits) => waits,
            None => {
                let waits = Waits::new()?;
                self.waits.get_or_init(|| waits)
            }
        };
        if !tasks.is_running {
            spawn(Box::new(|| self.run(waits))).map_err(|_| Errno::AGAIN)?;
            tasks.is_running = true;
        }
        let place = Place { waits, slot: tasks.count };
        debug_assert!(place.slot < WAKE);
        tasks.new.push(Served { task: make(place)?, next: Next::Now });
        tasks.count += 1;
        drop(tasks);
        place.wake();
        Ok(place)
    }

    /// The main loop of the thread. The loop never ends, because the process may need the thread again.
    fn run(&self, waits: &Waits) {
        let mut tasks: Vec<Served> = Vec::new();
        let mut events = [const { MaybeUninit::uninit() }; MAX_EVENTS];
        loop {
            let (mut is_due, mut until) = (false, None);
            for served in &tasks {
                match served.next {
                    Next::Never => {}
                    Next::At(time) => until = Some(until.map_or(time, |until: Instant| until.min(time))),
                    Next::Now => is_due = true,
                }
            }
            let events = waits.wait(is_due, until, &mut events);
            let woken = waits.take_woken();
            if woken != 0 {
                tasks.append(&mut unpoisoned(self.tasks.lock()).new);
            }
            for event in events {
                let (slot, id) = (event.data.u64() & WAKE, event.data.u64() >> SLOT_BITS);
                if let Some(served) = tasks.get_mut(slot as usize) {
                    served.call(|task| {
                        task.event(id);
                        Next::Now
                    });
                }
            }
            // The clock is read only if there is a time, because on some machines reading it is a system call.
            let now = until.map(|_| Instant::now());
            for (slot, served) in tasks.iter_mut().enumerate() {
                let is_due = match served.next {
                    Next::Never => false,
                    Next::At(time) => now.is_some_and(|now| time <= now),
                    Next::Now => true,
                };
                if is_due || woken & (1 << slot) != 0 {
                    served.call(|task| task.turn());
                }
            }
        }
    }
}

impl Served {
    /// Calls the task, which returns when its next turn is. A panic ends only this call, because the other tasks need
    /// the thread, too.
    fn call(&mut self, call: impl FnOnce(&mut dyn Task) -> Next) {
        // A task logs while it holds locks that the logger may need.
        let _held = Held::new();
        let called = catch_unwind(AssertUnwindSafe(|| call(&mut *self.task)));
        self.next = called.unwrap_or_else(|payload| {
            // Its drop could panic too.
            mem::forget(payload);
            rdma_mummy_sys::log!(error, "a task of the thread has panicked; it continues in {PAUSE:?}");
            Next::At(Instant::now() + PAUSE)
        });
    }
}

impl Waits {
    fn new() -> Result<Self, Errno> {
        let all = Descriptor::open(|| epoll::create(epoll::CreateFlags::CLOEXEC))?;
        let wake = Descriptor::open(|| rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))?;
        if !cfg!(miri) {
            epoll::add(&all, &wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        }
        Ok(Self { all, wake, woken: AtomicU64::new(0) })
    }

    /// Returns the tasks that were woken since the last call, as a bit for each.
    fn take_woken(&self) -> u64 {
        if self.woken.load(Ordering::SeqCst) == 0 { 0 } else { self.woken.swap(0, Ordering::SeqCst) }
    }

    /// Waits until there is an event or a wake-up, or until a time. If a task is due, does not wait. Returns the events.
    fn wait<'e>(
        &self,
        is_due: bool,
        until: Option<Instant>,
        events: &'e mut [MaybeUninit<epoll::Event>; MAX_EVENTS],
    ) -> &'e mut [epoll::Event] {
        let left = match is_due {
            true => Some(Duration::ZERO),
            false => until.map(|until| until.saturating_duration_since(Instant::now())),
        };
        // Miri supports no level-triggered epoll.
        if cfg!(miri) {
            thread::sleep(left.unwrap_or(Duration::MAX).min(Duration::from_millis(1)));
            return &mut [];
        }
        // epoll rounds times up to milliseconds, so poll waits for the rest.
        let time = left.map(|left| Duration::from_millis(left.as_millis().try_into().unwrap_or(u64::MAX)));
        if let Some(left) = left.filter(|_| time == Some(Duration::ZERO)).filter(|left| !left.is_zero()) {
            let left = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
            _ = rustix::event::poll(&mut [PollFd::new(&self.all, PollFlags::IN)], Some(&left));
        }
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        let events = match epoll::wait(&self.all, events, time.as_ref()) {
            Ok((events, _)) => events,
            Err(error) => {
                if error != Errno::INTR {
                    rdma_mummy_sys::log!(error, "cannot wait for peers: epoll failed: {error}");
                    thread::sleep(PAUSE);
                }
                return &mut [];
            }
        };
        if events.iter().any(|event| event.data.u64() == WAKE) {
            _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
        events
    }
}

impl Place {
    /// Makes the thread call [`Task::event`] with this ID when there is an event of a descriptor.
    pub(crate) fn watch(self, descriptor: impl AsFd, id: u64, flags: epoll::EventFlags) -> Result<(), Errno> {
        epoll::add(&self.waits.all, descriptor, self.data(id), flags)
    }

    /// Changes the events of a descriptor for which the thread waits.
    pub(crate) fn rewatch(self, descriptor: impl AsFd, id: u64, flags: epoll::EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.waits.all, descriptor, self.data(id), flags)
    }

    pub(crate) fn unwatch(self, descriptor: impl AsFd) {
        _ = epoll::delete(&self.waits.all, descriptor);
    }

    /// Whether the thread would wait. Wake-ups do not count.
    #[cfg(test)]
    pub(crate) fn is_quiet(self) -> bool {
        let mut events = [const { MaybeUninit::uninit() }; MAX_EVENTS];
        let events = self.waits.wait(true, None, &mut events);
        events.iter().all(|event| event.data.u64() == WAKE)
    }

    /// Packs an ID, which has at most 61 bits, with the place.
    fn data(self, id: u64) -> epoll::EventData {
        debug_assert!(id <= u64::MAX >> SLOT_BITS);
        epoll::EventData::new_u64(id << SLOT_BITS | self.slot)
    }

    /// Makes the thread call [`Task::turn`] soon.
    pub(crate) fn wake(self) {
        self.waits.woken.fetch_or(1 << self.slot, Ordering::SeqCst);
        // The write fails only if a wake-up is already pending.
        _ = rustix::io::write(&self.waits.wake, &1_u64.to_ne_bytes());
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").field("next", &self.next).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::mpsc::{self, Sender};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Reports its calls. The first turn of `delay` asks for another one after this time.
    struct Reporter {
        name: &'static str,
        calls: Sender<(&'static str, Option<u64>)>,
        delay: Option<Duration>,
    }

    impl Task for Reporter {
        fn event(&mut self, id: u64) {
            _ = self.calls.send((self.name, Some(id)));
        }

        fn turn(&mut self) -> Next {
            _ = self.calls.send((self.name, None));
            Next::from(self.delay.take().map(|delay| Instant::now() + delay))
        }
    }

    #[test]
    fn thread_that_could_not_start_is_started_later() {
        let (calls, _) = mpsc::channel();
        let task = |_| Ok(Box::new(Reporter { name: "", calls: calls.clone(), delay: None }) as Box<dyn Task>);
        let (reactor, mut started) = (Reactor::of_test(), 0);
        let failed = reactor.add_by(task, |_| Err(io::ErrorKind::OutOfMemory.into()));
        assert_eq!(failed.err(), Some(Errno::AGAIN));
        for slot in 0..2 {
            let place = reactor.add_by(task, |_| {
                started += 1;
                Ok(())
            });
            assert_eq!(place.unwrap().slot, slot);
        }
        assert_eq!(started, 1);
    }

    #[test]
    fn thread_calls_the_tasks_that_have_work() {
        let (calls, seen) = mpsc::channel();
        let reactor = Reactor::of_test();
        let task = |name, delay| {
            let calls = calls.clone();
            reactor.add(move |_| Ok(Box::new(Reporter { name, calls, delay }))).unwrap()
        };
        task("first", None);
        assert_eq!(seen.recv_timeout(LONG), Ok(("first", None)));
        let second = task("second", Some(Duration::from_micros(1)));
        assert_eq!([(); 2].map(|()| seen.recv_timeout(LONG)), [Ok(("second", None)); 2], "the start and the time");
        second.wake();
        assert_eq!(seen.recv_timeout(LONG), Ok(("second", None)));
    }

    /// Panics in its first turn.
    struct Fragile {
        turns: Sender<()>,
        has_panicked: bool,
    }

    impl Task for Fragile {
        fn turn(&mut self) -> Next {
            assert!(mem::replace(&mut self.has_panicked, true), "the first turn of a test's task");
            _ = self.turns.send(());
            Next::Never
        }
    }

    #[test]
    fn task_that_panics_continues_and_ends_no_other() {
        let (turns, seen) = mpsc::channel();
        let (calls, of_other) = mpsc::channel();
        let reactor = Reactor::of_test();
        reactor.add(|_| Ok(Box::new(Fragile { turns, has_panicked: false }))).unwrap();
        reactor.add(|_| Ok(Box::new(Reporter { name: "other", calls, delay: None }))).unwrap();
        assert_eq!(of_other.recv_timeout(LONG), Ok(("other", None)));
        assert_eq!(seen.recv_timeout(LONG), Ok(()));
    }

    /// One task has events all the time.
    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn busy_task_delays_no_other() {
        let (calls, seen) = mpsc::channel();
        let (others, of_others) = mpsc::channel();
        let reactor = Reactor::of_test();
        let busy = reactor.add(|_| Ok(Box::new(Reporter { name: "busy", calls, delay: None }))).unwrap();
        let ready = || Descriptor::open(|| rustix::event::eventfd(1, EventfdFlags::CLOEXEC)).unwrap();
        let descriptors: Vec<Descriptor> = (0..2 * MAX_EVENTS).map(|_| ready()).collect();
        for (id, descriptor) in descriptors.iter().enumerate() {
            busy.watch(descriptor, id as u64, epoll::EventFlags::IN).unwrap();
        }
        let delay = Some(Duration::from_millis(1));
        let other = reactor.add(|_| Ok(Box::new(Reporter { name: "other", calls: others, delay }))).unwrap();
        assert_eq!([(); 2].map(|()| of_others.recv_timeout(LONG)), [Ok(("other", None)); 2]);
        other.wake();
        assert_eq!(of_others.recv_timeout(LONG), Ok(("other", None)));
        let mut left: BTreeSet<_> = (0..descriptors.len() as u64).collect();
        while !left.is_empty() {
            let (_, id) = seen.recv_timeout(LONG).unwrap();
            id.map(|id| left.remove(&id));
        }
        descriptors.iter().for_each(|descriptor| busy.unwatch(descriptor));
    }
}
