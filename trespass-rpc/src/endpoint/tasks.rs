//! Runs handlers. Their futures are stored in reusable slots, so a call does not allocate.
//!
//! A task may run on any thread; its driver need not wait for it. See `home`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::body::Body;
use crate::error::Status;
use crate::wire::{Flags, PeerMethod};

use super::{Link, Shared};

/// A handler that runs this long without an `await` blocks its thread.
pub(super) const BLOCKED: Duration = Duration::from_millis(100);
/// After a handler has blocked its thread, this number of calls of its method run on threads of their own. Each further
/// one that blocks starts the count again.
const SUSPECTED: u32 = 100;

/// A request of the peer that has arrived and will be passed to a handler.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) link: Arc<Link>,
    pub(crate) id: u32,
    pub(crate) method: u64,
    pub(crate) flags: Flags,
    /// The deadline, by the endpoint's clock.
    pub(crate) deadline: Option<u64>,
    pub(crate) meta: Body,
    pub(crate) body: Body,
}

impl Arrived {
    /// The time until which the caller waits.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline.map(|micros| self.link.shared.instant(micros))
    }
}

/// The outcome of a handler.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: Status,
    /// Whether the request was refused before a handler ran.
    pub(crate) is_refused: bool,
    pub(crate) body: Body,
}

/// Makes the tasks for the requests of one server.
pub(crate) trait Runner: Send {
    /// Returns the methods that this server or handler serves.
    fn methods(&self) -> Vec<PeerMethod>;
    /// Sets the endpoint and the runner's number.
    fn place(&mut self, shared: &Arc<Shared>, number: u32);
    /// Returns a task for a request of this method.
    fn task(&mut self, method: u64) -> Option<Arc<dyn Task>>;
    /// Takes a task back that has ended.
    fn recycle(&mut self, task: Arc<dyn Task>);
}

/// A running handler.
pub(crate) trait Task: Send + Sync {
    /// Begins a request, or continues the one that was begun. A request whose handler has ended is answered, unless the
    /// task was cancelled.
    fn run(self: Arc<Self>, request: Option<Arrived>) -> (Arc<dyn Task>, Progress);
    /// Ends the task without an answer. Returns whether it ended now. Otherwise it has not begun or is running, and the
    /// thread that runs it reports its end; or it has ended before.
    fn cancel(&self) -> bool;
    /// The numbers of the runner, and of the task within the runner.
    fn place(&self) -> (u32, u32);
    /// Whether a handler of this method has blocked its thread not long ago.
    fn may_block(&self) -> bool;
    /// Records that the handler blocks its thread, and logs it unless this is known already.
    fn suspect(&self);
}

/// The result of [`Task::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Pending,
    /// The numbers of the link and of the request that has ended.
    Ended(u32, u32),
    /// The task had ended before.
    Gone,
}

/// Creates a runner whose handlers are the futures that a function returns.
pub(crate) fn runner<M, F>(methods: Vec<PeerMethod>, make: M) -> Box<dyn Runner>
where
    M: Fn(Arrived) -> F + Send + Sync + 'static,
    F: Future<Output = Outcome> + Send + 'static,
{
    let methods = methods.into_iter().map(|method| Method { method, suspected: AtomicU32::new(0) }).collect();
    Box::new(Tasks { served: Arc::new(Served { methods, make }), slots: Vec::new(), free: Vec::new(), place: None })
}

struct Tasks<M, F> {
    served: Arc<Served<M>>,
    slots: Vec<Arc<Slot<M, F>>>,
    free: Vec<u32>,
    place: Option<(Arc<Shared>, u32)>,
}

/// What a server serves.
struct Served<M> {
    methods: Vec<Method>,
    make: M,
}

struct Method {
    method: PeerMethod,
    /// For how many further calls the method counts as one that blocks.
    suspected: AtomicU32,
}

struct Slot<M, F> {
    served: Arc<Served<M>>,
    shared: Arc<Shared>,
    place: (u32, u32),
    /// The index of the method that the request calls.
    method: Option<usize>,
    /// The bits `QUEUED`, `RUNNING` and `CANCELLED`.
    state: AtomicU8,
    work: Mutex<Work<F>>,
}

/// A request and the future that serves it; both are absent after the end.
struct Work<F> {
    request: Option<(Arc<Link>, u32)>,
    future: Pin<Box<Option<F>>>,
}

/// The task is in the queue of the driver, or will be when the thread that runs it has finished.
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
const CANCELLED: u8 = 4;

impl<M, F> Runner for Tasks<M, F>
where
    M: Fn(Arrived) -> F + Send + Sync + 'static,
    F: Future<Output = Outcome> + Send + 'static,
{
    fn methods(&self) -> Vec<PeerMethod> {
        self.served.methods.iter().map(|known| known.method.clone()).collect()
    }

    fn place(&mut self, shared: &Arc<Shared>, number: u32) {
        self.place = Some((Arc::clone(shared), number));
    }

    fn task(&mut self, method: u64) -> Option<Arc<dyn Task>> {
        let method = self.served.methods.binary_search_by_key(&method, |known| known.method.id).ok();
        let index = self.free.pop().unwrap_or(self.slots.len() as u32);
        match self.slots.get_mut(index as usize).map(Arc::get_mut) {
            Some(Some(slot)) => (slot.method, *slot.state.get_mut()) = (method, RUNNING),
            // A waker of an earlier request still refers to the slot, and could run the next request too early.
            Some(None) => self.slots[index as usize] = self.slot(index, method)?,
            None => {
                let slot = self.slot(index, method)?;
                self.slots.push(slot);
            }
        }
        Some(Arc::clone(&self.slots[index as usize]) as _)
    }

    fn recycle(&mut self, task: Arc<dyn Task>) {
        let (_, index) = task.place();
        // A task that ends late may belong to an earlier runner of the same number.
        if self.slots.get(index as usize).is_some_and(|slot| ptr::addr_eq(Arc::as_ptr(slot), Arc::as_ptr(&task))) {
            self.free.push(index);
        }
    }
}

impl<M, F> Tasks<M, F> {
    fn slot(&self, index: u32, method: Option<usize>) -> Option<Arc<Slot<M, F>>> {
        let (shared, runner) = self.place.clone()?;
        let work = Mutex::new(Work { request: None, future: Box::pin(None) });
        let (served, place, state) = (Arc::clone(&self.served), (runner, index), AtomicU8::new(RUNNING));
        Some(Arc::new(Slot { served, shared, place, method, state, work }))
    }
}

impl<M, F> Task for Slot<M, F>
where
    M: Fn(Arrived) -> F + Send + Sync + 'static,
    F: Future<Output = Outcome> + Send + 'static,
{
    fn run(self: Arc<Self>, request: Option<Arrived>) -> (Arc<dyn Task>, Progress) {
        let progress = self.advance(request);
        (self, progress)
    }

    fn cancel(&self) -> bool {
        let before = self.state.fetch_or(CANCELLED, Ordering::AcqRel);
        before & RUNNING == 0 && self.lock().clear().is_some()
    }

    fn place(&self) -> (u32, u32) {
        self.place
    }

    fn may_block(&self) -> bool {
        self.method().is_some_and(|method| method.suspected.load(Ordering::Relaxed) != 0)
    }

    fn suspect(&self) {
        if let Some(method) = self.method()
            && method.suspected.swap(SUSPECTED, Ordering::Relaxed) == 0
        {
            rdma_mummy_sys::log!(
                warn,
                "the handler of {} blocks its thread for {} ms or longer; run blocking code with \
                 tokio::task::spawn_blocking",
                method.method.name,
                BLOCKED.as_millis()
            );
        }
    }
}

impl<M, F> Slot<M, F>
where
    M: Fn(Arrived) -> F + Send + Sync + 'static,
    F: Future<Output = Outcome> + Send + 'static,
{
    fn advance(self: &Arc<Self>, request: Option<Arrived>) -> Progress {
        // No two threads run the task at a time, because the queues contain it once at most. A new task counts as
        // running already.
        if request.is_none() {
            let run = |state| Some(state & CANCELLED | RUNNING);
            _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, run);
        }
        let (begun, mut work) = (now(), self.lock());
        let mut polled = Poll::Pending;
        if let Some(request) = request {
            if self.is_cancelled() {
                return Progress::Ended(request.link.index, request.id);
            }
            work.request = Some((Arc::clone(&request.link), request.id));
            // Creates the future in its slot, because it may be long.
            let make = || work.future.as_mut().set(Some((self.served.make)(request)));
            if catch_unwind(AssertUnwindSafe(make)).is_err() {
                polled = Poll::Ready(panicked());
            }
        }
        if let Some(future) = work.future.as_mut().as_pin_mut().filter(|_| !self.is_cancelled()) {
            let waker = Waker::from(Arc::clone(self));
            let poll = || future.poll(&mut TaskContext::from_waker(&waker));
            polled = catch_unwind(AssertUnwindSafe(poll)).unwrap_or_else(|_| Poll::Ready(panicked()));
        }
        self.check_time(begun);
        if let Poll::Ready(outcome) = polled {
            let request = work.clear();
            drop(work);
            let Some((link, id)) = request else { return Progress::Gone };
            if !self.is_cancelled() {
                link.answer(id, outcome.status, outcome.is_refused, &outcome.body);
            }
            return Progress::Ended(link.index, id);
        }
        drop(work);
        // Sleeps, unless the task was cancelled meanwhile.
        let sleep = |state| (state & CANCELLED == 0).then_some(state & QUEUED);
        match self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, sleep) {
            Ok(before) => {
                if before & QUEUED != 0 {
                    self.queue();
                }
                Progress::Pending
            }
            Err(_) => self.lock().clear().map_or(Progress::Gone, |(link, id)| Progress::Ended(link.index, id)),
        }
    }
}

impl<M, F> Wake for Slot<M, F>
where
    M: Fn(Arrived) -> F + Send + Sync + 'static,
    F: Future<Output = Outcome> + Send + 'static,
{
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.fetch_or(QUEUED, Ordering::AcqRel) & (QUEUED | RUNNING) == 0 {
            self.queue();
        }
    }
}

impl<M, F> Slot<M, F>
where
    M: Fn(Arrived) -> F + Send + Sync + 'static,
    F: Future<Output = Outcome> + Send + 'static,
{
    fn lock(&self) -> MutexGuard<'_, Work<F>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_cancelled(&self) -> bool {
        self.state.load(Ordering::Acquire) & CANCELLED != 0
    }

    fn method(&self) -> Option<&Method> {
        self.served.methods.get(self.method?)
    }

    /// Adds the task to the queue of the driver.
    fn queue(self: &Arc<Self>) {
        self.shared.poke(|signal| {
            // Nothing empties the queue of a driver that has ended, and the task refers to it.
            if !signal.has_ended {
                signal.tasks.push(Arc::clone(self) as _);
            }
        });
    }

    /// Records whether the handler has blocked its thread.
    fn check_time(&self, begun: Duration) {
        if now().saturating_sub(begun) >= BLOCKED {
            self.suspect();
        } else if self.may_block()
            && let Some(method) = self.method()
        {
            let fewer = |count: u32| count.checked_sub(1);
            _ = method.suspected.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        }
    }
}

impl<F> Work<F> {
    /// Drops the future. Returns the request that it served.
    fn clear(&mut self) -> Option<(Arc<Link>, u32)> {
        let emptied = catch_unwind(AssertUnwindSafe(|| self.future.as_mut().set(None)));
        if emptied.is_err() {
            // A future that panicked while it was dropped must not be dropped again, so it is leaked.
            std::mem::forget(std::mem::replace(&mut self.future, Box::pin(None)));
            panicked();
        }
        self.request.take()
    }
}

/// The time of the clock that is read without a system call on every machine; it advances every few milliseconds.
fn now() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// Returns the answer for a handler that panicked. The answer contains an incident number, which is also logged, but
/// not the text of the panic.
#[cold]
fn panicked() -> Outcome {
    static INCIDENTS: AtomicU64 = AtomicU64::new(1);
    let incident = INCIDENTS.fetch_add(1, Ordering::Relaxed);
    rdma_mummy_sys::log!(error, "a handler panicked: incident {incident}");
    let body = Body::copy(format!("incident {incident} in the log of the peer").as_bytes());
    Outcome { status: Status::INTERNAL, is_refused: false, body }
}
