//! Runs handlers. Their futures are stored in reusable slots, so a call does not allocate.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::body::Body;
use crate::error::Status;
use crate::wire::{Flags, PeerMethod};

use super::{Link, Shared};

/// A handler that runs this long without an `await` is logged. The default keepalive of the peers is three times as long.
const BLOCKED: Duration = Duration::from_secs(1);

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

/// Runs the requests of one server.
pub(crate) trait Runner: Send {
    /// Returns the methods that this server or handler serves.
    fn methods(&self) -> Vec<PeerMethod>;
    /// Sets the endpoint and the runner's number. Wakers use them to queue the tasks to poll.
    fn place(&mut self, shared: &Arc<Shared>, number: u32);
    /// Starts a request's handler. If the handler completes immediately, answers the request; otherwise returns the
    /// task.
    fn start(&mut self, request: Arrived) -> Option<u32>;
    /// Polls a task. If the request was answered, returns the numbers of its link and of the request.
    fn poll(&mut self, task: u32) -> Option<(u32, u32)>;
    /// Drops a task without answering its request.
    fn cancel(&mut self, task: u32);
}

/// Creates a runner whose handlers are the futures that a function returns.
pub(crate) fn runner<M, F>(methods: Vec<PeerMethod>, make: M) -> Box<dyn Runner>
where
    M: Fn(Arrived) -> F + Send + 'static,
    F: Future<Output = Outcome> + Send + 'static,
{
    Box::new(Tasks { methods, make, slots: Vec::new(), free: Vec::new(), place: None })
}

struct Tasks<M, F> {
    methods: Vec<PeerMethod>,
    make: M,
    slots: Vec<Slot<F>>,
    free: Vec<u32>,
    place: Option<(Arc<Shared>, u32)>,
}

struct Slot<F> {
    future: Pin<Box<Option<F>>>,
    flag: Arc<Flag>,
    waker: Waker,
    request: Option<(Arc<Link>, u32)>,
    /// The method that the request calls.
    method: u64,
}

/// Adds a task to the queue of tasks to poll.
struct Flag {
    shared: Arc<Shared>,
    runner: u32,
    task: u32,
    is_queued: AtomicBool,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.shared.poke(|signal| signal.tasks.push((self.runner, self.task)));
        }
    }
}

impl<M, F> Tasks<M, F>
where
    M: Fn(Arrived) -> F + Send,
    F: Future<Output = Outcome> + Send,
{
    fn slot(&mut self) -> Option<u32> {
        if let Some(task) = self.free.pop() {
            return Some(task);
        }
        let (shared, runner) = self.place.clone()?;
        let task = self.slots.len() as u32;
        let flag = Arc::new(Flag { shared, runner, task, is_queued: AtomicBool::new(false) });
        let waker = Waker::from(Arc::clone(&flag));
        self.slots.push(Slot { future: Box::pin(None), flag, waker, request: None, method: 0 });
        Some(task)
    }

    /// Polls the future in a slot, and frees the slot if the future has completed.
    fn advance(&mut self, task: u32) -> Option<(u32, u32)> {
        let slot = self.slots.get_mut(task as usize)?;
        slot.flag.is_queued.store(false, Ordering::Release);
        let future = slot.future.as_mut().as_pin_mut()?;
        let mut context = TaskContext::from_waker(&slot.waker);
        let (method, begun) = (slot.method, now());
        let polled = catch_unwind(AssertUnwindSafe(|| future.poll(&mut context)));
        check_time(&self.methods, method, begun);
        let outcome = match polled {
            Ok(Poll::Pending) => return None,
            Ok(Poll::Ready(outcome)) => outcome,
            Err(_) => panicked(),
        };
        let (link, id) = slot.request.take()?;
        self.clear(task);
        link.answer(id, outcome.status, outcome.is_refused, &outcome.body);
        Some((link.index, id))
    }

    fn clear(&mut self, task: u32) {
        let Some(slot) = self.slots.get_mut(task as usize) else { return };
        slot.request = None;
        let emptied = catch_unwind(AssertUnwindSafe(|| slot.future.as_mut().set(None)));
        if emptied.is_err() {
            // A future that panicked while it was dropped must not be dropped again, so it is leaked.
            std::mem::forget(std::mem::replace(&mut slot.future, Box::pin(None)));
            panicked();
        }
        self.free.push(task);
    }
}

impl<M, F> Runner for Tasks<M, F>
where
    M: Fn(Arrived) -> F + Send,
    F: Future<Output = Outcome> + Send,
{
    fn methods(&self) -> Vec<PeerMethod> {
        self.methods.clone()
    }

    fn place(&mut self, shared: &Arc<Shared>, number: u32) {
        self.place = Some((Arc::clone(shared), number));
    }

    fn start(&mut self, request: Arrived) -> Option<u32> {
        let (link, id) = (Arc::clone(&request.link), request.id);
        let (task, method, begun) = (self.slot()?, request.method, now());
        let (slot, make) = (&mut self.slots[task as usize], &self.make);
        // Creates the future in its slot, because it may be long.
        let made = catch_unwind(AssertUnwindSafe(|| slot.future.as_mut().set(Some(make(request)))));
        check_time(&self.methods, method, begun);
        if made.is_err() {
            self.free.push(task);
            let outcome = panicked();
            link.answer(id, outcome.status, false, &outcome.body);
            return None;
        }
        (slot.request, slot.method) = (Some((link, id)), method);
        self.advance(task);
        self.slots[task as usize].request.is_some().then_some(task)
    }

    fn poll(&mut self, task: u32) -> Option<(u32, u32)> {
        self.advance(task)
    }

    fn cancel(&mut self, task: u32) {
        if self.slots.get(task as usize).is_some_and(|slot| slot.request.is_some()) {
            self.clear(task);
        }
    }
}

/// The time of the clock that is read without a system call on every machine; it advances every few milliseconds.
fn now() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// Logs a handler that has blocked the driver.
fn check_time(methods: &[PeerMethod], method: u64, begun: Duration) {
    let took = now().saturating_sub(begun);
    if took >= BLOCKED {
        blocked(methods, method, took);
    }
}

#[cold]
fn blocked(methods: &[PeerMethod], method: u64, took: Duration) {
    let name = methods.iter().find(|known| known.id == method).map_or("an unknown method", |known| &known.name);
    log::warn!(
        "the handler of {name} blocked all connections of its endpoint for {:.1} s; run blocking code on another thread \
         (tokio::task::spawn_blocking)",
        took.as_secs_f64()
    );
}

/// Returns the answer for a handler that panicked. The answer contains an incident number, which is also logged, but
/// not the text of the panic.
#[cold]
fn panicked() -> Outcome {
    static INCIDENTS: AtomicU64 = AtomicU64::new(1);
    let incident = INCIDENTS.fetch_add(1, Ordering::Relaxed);
    log::error!("a handler panicked: incident {incident}");
    let body = Body::copy(format!("incident {incident}").as_bytes());
    Outcome { status: Status::INTERNAL, is_refused: false, body }
}
