//! Where a driver stays while its thread runs handlers.
//!
//! A handler may block its thread. The thread that owns the driver therefore leaves it here before it runs handlers. If
//! one of them takes too long, the thread `trespass-rpc-watch` takes the driver and runs the connections in place of the
//! owner, and other threads (`trespass-rpc-aside`) run the handlers. When the owner is free again, it gets the driver
//! back. The calls of a method whose handler has blocked its thread run on other threads for some time.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;

use super::tasks::{Arrived, BLOCKED, Progress, Task};
use super::thread::OnThread;
use super::{Command, Driver, Shared};

/// Maximum number of threads that run the handlers of one driver beside it.
const MOST: usize = 512;
/// How long such a thread waits for the next handler before it ends.
const IDLE: Duration = Duration::from_secs(1);

/// A handler to run: a request to begin, or a task to continue.
pub(super) struct Due {
    pub(super) task: Arc<dyn Task>,
    pub(super) request: Option<Arrived>,
}

/// A request, and the task that serves it.
pub(super) struct Begun {
    /// The number of the link, which exists until the driver has recorded the task.
    pub(super) link: u32,
    pub(super) id: u32,
    pub(super) task: Arc<dyn Task>,
}

/// What has become of handlers.
#[derive(Default)]
pub(super) struct Results {
    /// The requests that were begun and whose handlers go on.
    pub(super) begun: Vec<Begun>,
    pub(super) ended: Vec<Ended>,
}

/// A task that has ended.
pub(super) struct Ended {
    pub(super) task: Arc<dyn Task>,
    /// The numbers of the link and of the request, if the driver has recorded the task.
    pub(super) request: Option<(u32, u32)>,
}

impl Due {
    /// Runs a handler on this thread.
    pub(super) fn run(self, results: &mut Results) {
        let begins = self.begins();
        let (task, progress) = self.task.run(self.request);
        results.add(task, progress, begins);
    }

    /// The numbers of the link and of the request that this begins.
    fn begins(&self) -> Option<(u32, u32)> {
        self.request.as_ref().map(|request| (request.link.index, request.id))
    }
}

impl Results {
    /// Adds the result of a task, and the request that it has begun unless it is recorded already.
    fn add(&mut self, task: Arc<dyn Task>, progress: Progress, begins: Option<(u32, u32)>) {
        match (progress, begins) {
            (Progress::Pending, Some((link, id))) => self.begun.push(Begun { link, id, task }),
            (Progress::Ended(link, id), None) => self.ended.push(Ended { task, request: Some((link, id)) }),
            (Progress::Ended(..), Some(_)) => self.ended.push(Ended { task, request: None }),
            (Progress::Pending | Progress::Gone, _) => {}
        }
    }
}

/// The home of a driver, for its owner. Dropping it ends the driver.
pub(super) struct Home(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    /// The runtime of the owner. Handlers may use it on any thread.
    runtime: Option<Handle>,
    state: Mutex<State>,
    /// Wakes the thread that watches, while it is parked.
    watch: Condvar,
    /// Wakes a thread that waits for handlers.
    passed: Condvar,
}

#[derive(Default)]
struct State {
    /// The driver, while its owner runs handlers.
    left: Option<Box<Driver>>,
    /// The driver, after another thread has run it for the owner.
    returned: Option<Box<Driver>>,
    /// The waker of the owner, while it waits for the driver.
    owner: Option<Waker>,
    /// The driver has no connections left, or the owner was dropped.
    is_over: bool,
    /// The handlers that the owner will run.
    ready: VecDeque<Due>,
    /// The handler that the owner runs, and the number of handlers that it has run.
    current: Option<Arc<dyn Task>>,
    /// The request that the current handler has begun.
    begins: Option<(u32, u32)>,
    count: u64,
    results: Results,
    watching: Watching,
    /// The handlers for other threads, the number of these threads, and how many of them are idle.
    aside: VecDeque<Due>,
    threads: usize,
    idle: usize,
}

/// The thread that watches the owner.
#[derive(Default, PartialEq)]
enum Watching {
    #[default]
    Absent,
    /// It waits until the owner runs handlers.
    Parked,
    Active,
}

impl Home {
    pub(super) fn new(shared: &Arc<Shared>, runtime: Option<Handle>) -> Self {
        let (shared, state) = (Arc::clone(shared), Mutex::default());
        Self(Arc::new(Inner { shared, runtime, state, watch: Condvar::new(), passed: Condvar::new() }))
    }

    /// Runs the driver's handlers. Returns `None` if another thread has taken the driver meanwhile.
    pub(super) fn run(&self, mut driver: Box<Driver>) -> Option<Box<Driver>> {
        let inner = &self.0;
        let mut state = inner.lock();
        mem::swap(&mut state.ready, &mut driver.ready);
        state.left = Some(driver);
        inner.begin_watch(&mut state);
        while let Some(mut due) = state.ready.pop_front() {
            if due.task.may_block() {
                match inner.put_aside(&mut state, due) {
                    Ok(()) => continue,
                    Err(again) => due = again,
                }
            }
            state = inner.run_here(state, due);
            state.left.as_ref()?;
        }
        let mut driver = state.left.take()?;
        // The queues keep their memory for the next turn.
        mem::swap(&mut state.ready, &mut driver.ready);
        mem::swap(&mut state.results, &mut driver.results);
        drop(state);
        driver.settle();
        Some(driver)
    }

    /// Returns the driver if no other thread runs it; otherwise registers the waker that is called when this changes.
    pub(super) fn take_back(&self, waker: &Waker) -> Option<Box<Driver>> {
        // The clone and the drop of a waker are code of the program.
        let mut waker = Some(waker.clone());
        let mut state = self.0.lock();
        let driver = state.returned.take();
        if driver.is_none() {
            mem::swap(&mut state.owner, &mut waker);
            drop(state);
            self.0.shared.command(Command::Return);
        }
        driver
    }

    /// Whether the driver has ended on another thread.
    pub(super) fn is_over(&self) -> bool {
        self.0.lock().is_over
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if self.0.shared.is_inherited() {
            return;
        }
        let mut state = self.0.lock();
        state.is_over = true;
        let rest = (state.left.take(), state.returned.take(), mem::take(&mut state.ready), mem::take(&mut state.aside));
        drop(state);
        self.0.watch.notify_all();
        self.0.passed.notify_all();
        self.0.shared.command(Command::Return);
        // Handlers are dropped without the lock.
        drop(rest);
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a handler on the thread of the owner, without the lock.
    fn run_here<'a>(&'a self, mut state: MutexGuard<'a, State>, due: Due) -> MutexGuard<'a, State> {
        state.count += 1;
        state.begins = due.begins();
        state.current = Some(Arc::clone(&due.task));
        drop(state);
        let (task, progress) = due.task.run(due.request);
        let mut state = self.lock();
        if state.current.take().is_none() && !matches!(progress, Progress::Ended(..)) {
            // Another thread has taken the driver, and has recorded the request. If the server has been dropped, this
            // drops the handler, which must happen without the lock.
            drop(state);
            drop(task);
            return self.lock();
        }
        let begins = state.begins.take();
        state.results.add(task, progress, begins);
        state
    }

    /// Passes a handler to another thread. Fails if there is none and the system has no threads left.
    fn put_aside(self: &Arc<Self>, state: &mut State, due: Due) -> Result<(), Due> {
        if state.idle <= state.aside.len() && state.threads < MOST {
            let inner = Arc::clone(self);
            let builder = thread::Builder::new().name("trespass-rpc-aside".to_owned());
            match trespass::without_signals(|| builder.spawn(move || inner.run_aside())) {
                Ok(_) => state.threads += 1,
                Err(_) if state.threads != 0 => {}
                Err(_) => return Err(due),
            }
        }
        if let Some((link, id)) = due.begins() {
            state.results.begun.push(Begun { link, id, task: Arc::clone(&due.task) });
        }
        state.aside.push_back(due);
        self.passed.notify_one();
        Ok(())
    }

    /// Runs such handlers on this thread.
    fn run_aside(&self) {
        let _runtime = self.runtime.as_ref().map(Handle::enter);
        let mut state = self.lock();
        while !state.is_over {
            if let Some(Due { task, request }) = state.aside.pop_front() {
                drop(state);
                let (task, progress) = task.run(request);
                // If the server has been dropped, this drops the handler, which must happen without the lock.
                let ended = Some(task).filter(|_| matches!(progress, Progress::Ended(..)));
                state = self.lock();
                if let Some(task) = ended {
                    state.results.add(task, progress, None);
                }
                continue;
            }
            state.idle += 1;
            let (again, waited) = self.passed.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = again;
            state.idle -= 1;
            if waited.timed_out() && state.aside.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }

    fn begin_watch(self: &Arc<Self>, state: &mut State) {
        match state.watching {
            Watching::Active => return,
            Watching::Parked => self.watch.notify_one(),
            Watching::Absent => {
                let inner = Arc::clone(self);
                let builder = thread::Builder::new().name("trespass-rpc-watch".to_owned());
                let spawn = |thread| trespass::without_signals(|| builder.spawn(move || inner.watch(thread)));
                if OnThread::new().and_then(spawn).is_err() {
                    // The system has no threads or descriptors left now. The next handlers try again.
                    return;
                }
            }
        }
        state.watching = Watching::Active;
    }

    /// Takes the driver whenever its owner is busy with one handler for too long.
    fn watch(self: &Arc<Self>, mut thread: OnThread) {
        let mut state = self.lock();
        while !state.is_over {
            let seen = state.count;
            let waited = self.watch.wait_timeout(state, BLOCKED).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            if state.count != seen {
                continue;
            }
            match state.left.take() {
                Some(mut driver) => {
                    // The handlers that the owner has left.
                    mem::swap(&mut driver.ready, &mut state.ready);
                    let blocked = state.current.take();
                    if let (Some(task), Some((link, id))) = (blocked.clone(), state.begins.take()) {
                        state.results.begun.push(Begun { link, id, task });
                    }
                    drop(state);
                    if let Some(task) = blocked {
                        task.suspect();
                    }
                    self.stand_in(driver, &mut thread);
                    state = self.lock();
                }
                None => {
                    state.watching = Watching::Parked;
                    let is_parked = |state: &mut State| !state.is_over && state.watching == Watching::Parked;
                    state = self.watch.wait_while(state, is_parked).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Runs the driver on this thread until its owner is free, or until the driver has ended.
    fn stand_in(self: &Arc<Self>, mut driver: Box<Driver>, thread: &mut OnThread) {
        let _runtime = self.runtime.as_ref().map(Handle::enter);
        driver.send();
        loop {
            mem::swap(&mut self.lock().results, &mut driver.results);
            driver.settle();
            let mut state = self.lock();
            if state.is_over {
                drop(state);
                return;
            }
            if let Some(owner) = state.owner.take() {
                state.returned = Some(driver);
                drop(state);
                return owner.wake();
            }
            drop(state);
            driver = match thread.step(driver, |driver| self.pass_on(driver)) {
                Some(driver) if !driver.is_over() => driver,
                _ => break,
            };
        }
        let mut state = self.lock();
        state.is_over = true;
        let owner = state.owner.take();
        drop(state);
        if let Some(owner) = owner {
            owner.wake();
        }
    }

    /// Passes all handlers to other threads. If the system has no thread for them, they run here.
    fn pass_on(self: &Arc<Self>, mut driver: Box<Driver>) -> Option<Box<Driver>> {
        while let Some(due) = driver.ready.pop_front() {
            let passed = self.put_aside(&mut self.lock(), due);
            if let Err(due) = passed {
                due.run(&mut driver.results);
                driver.settle();
            }
        }
        Some(driver)
    }
}
