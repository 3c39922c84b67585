//! The tasks of a core, and their wakers, which any thread may use.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use crate::ready::Rouser;

type Task = Pin<Box<dyn Future<Output = ()>>>;

pub(crate) struct Tasks {
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<usize>>,
    ready: Arc<Ready>,
    /// The tasks of a turn, for reuse.
    turn: RefCell<VecDeque<usize>>,
    timers: RefCell<BTreeMap<(Instant, u64), Option<Waker>>>,
    next_timer: Cell<u64>,
    is_running: Cell<bool>,
}

struct Slot {
    /// `None` while it runs, and when it has ended.
    task: Option<Task>,
    waker: Arc<TaskWaker>,
}

/// What wakers use.
#[derive(Debug)]
struct Ready {
    queue: Mutex<VecDeque<usize>>,
    /// Whether the future of `run` was woken.
    main: AtomicBool,
    rouser: Arc<Rouser>,
}

#[derive(Debug)]
struct TaskWaker {
    number: usize,
    queued: AtomicBool,
    ready: Arc<Ready>,
}

impl Ready {
    fn queue(&self) -> std::sync::MutexGuard<'_, VecDeque<usize>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.main.store(true, Ordering::SeqCst);
        self.rouser.rouse();
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::SeqCst) {
            self.ready.queue().push_back(self.number);
            self.ready.rouser.rouse();
        }
    }
}

/// The loop that runs the tasks. At its end it drops those that are left.
pub(crate) struct Running<'t>(&'t Tasks);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.is_running.set(false);
        self.0.clear();
    }
}

impl Tasks {
    pub(crate) fn new(rouser: &Arc<Rouser>) -> Self {
        let ready = Ready { queue: Mutex::default(), main: AtomicBool::new(true), rouser: Arc::clone(rouser) };
        Self {
            slots: RefCell::default(),
            free: RefCell::default(),
            ready: Arc::new(ready),
            turn: RefCell::default(),
            timers: RefCell::default(),
            next_timer: Cell::new(0),
            is_running: Cell::new(false),
        }
    }

    /// The waker of the future of `run`, which starts woken.
    pub(crate) fn main_waker(&self) -> Waker {
        self.ready.main.store(true, Ordering::SeqCst);
        Waker::from(Arc::clone(&self.ready))
    }

    #[inline]
    pub(crate) fn take_main(&self) -> bool {
        self.ready.main.load(Ordering::Relaxed) && self.ready.main.swap(false, Ordering::SeqCst)
    }

    /// Begins a loop, unless there is one.
    pub(crate) fn begin(&self) -> Option<Running<'_>> {
        (!self.is_running.replace(true)).then_some(Running(self))
    }

    /// Adds a task. Returns its waker.
    pub(crate) fn add(&self, task: Task) -> Waker {
        let mut slots = self.slots.borrow_mut();
        let number = self.free.borrow_mut().pop().unwrap_or(slots.len());
        let waker = || TaskWaker { number, queued: AtomicBool::new(false), ready: Arc::clone(&self.ready) };
        let slot = Slot { task: Some(task), waker: Arc::new(waker()) };
        let waker = Arc::clone(&slot.waker);
        // A vacated slot has no task, and no code of the program runs when its waker is dropped.
        match slots.get_mut(number) {
            Some(place) => *place = slot,
            None => slots.push(slot),
        }
        drop(slots);
        waker.wake_by_ref();
        Waker::from(waker)
    }

    /// Polls each woken task once. Returns whether there was one.
    #[inline]
    pub(crate) fn run(&self) -> bool {
        if self.slots.borrow().is_empty() {
            return false;
        }
        let mut turn = std::mem::take(&mut *self.turn.borrow_mut());
        std::mem::swap(&mut turn, &mut *self.ready.queue());
        let ran = !turn.is_empty();
        while let Some(number) = turn.pop_front() {
            self.poll(number);
        }
        *self.turn.borrow_mut() = turn;
        ran
    }

    fn poll(&self, number: usize) {
        let taken = self.slots.borrow_mut().get_mut(number).and_then(|slot| {
            slot.waker.queued.store(false, Ordering::SeqCst);
            Some((slot.task.take()?, Waker::from(Arc::clone(&slot.waker))))
        });
        // A waker of a task that has ended, or that runs.
        let Some((mut task, waker)) = taken else { return };
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(()) => {
                self.free.borrow_mut().push(number);
                drop(task);
            }
            Poll::Pending => {
                if let Some(slot) = self.slots.borrow_mut().get_mut(number) {
                    slot.task = Some(task);
                }
            }
        }
    }

    /// Drops all tasks, also those that the drop of a task starts.
    fn clear(&self) {
        loop {
            let tasks: Vec<Task> = self.slots.borrow_mut().iter_mut().filter_map(|slot| slot.task.take()).collect();
            if tasks.is_empty() {
                break;
            }
            drop(tasks);
        }
        self.slots.borrow_mut().clear();
        self.free.borrow_mut().clear();
        self.ready.queue().clear();
    }

    /// Whether a task or the future of `run` was woken.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.ready.main.load(Ordering::SeqCst) || !self.slots.borrow().is_empty() && !self.ready.queue().is_empty()
    }

    pub(crate) fn add_timer(&self, at: Instant) -> (Instant, u64) {
        let key = (at, self.next_timer.get());
        self.next_timer.set(key.1 + 1);
        self.timers.borrow_mut().insert(key, None);
        // A core that sleeps in another task does not know of this timer.
        self.ready.rouser.rouse();
        key
    }

    /// Sets the waker of a timer; `false` if it has fired.
    pub(crate) fn set_timer(&self, key: (Instant, u64), waker: &Waker) -> bool {
        let waker = waker.clone();
        let earlier = self.timers.borrow_mut().get_mut(&key).map(|old| old.replace(waker));
        earlier.is_some()
    }

    pub(crate) fn remove_timer(&self, key: (Instant, u64)) {
        let waker = self.timers.borrow_mut().remove(&key);
        drop(waker);
    }

    pub(crate) fn next_timer(&self) -> Option<Instant> {
        Some(self.timers.borrow().first_key_value()?.0.0)
    }

    pub(crate) fn fire_due(&self) {
        if !self.timers.borrow().is_empty() {
            self.fire(Instant::now());
        }
    }

    /// Fires the timers that are due. Returns whether there were any.
    pub(crate) fn fire(&self, now: Instant) -> bool {
        let mut has_fired = false;
        loop {
            let mut timers = self.timers.borrow_mut();
            let Some(first) = timers.first_entry().filter(|first| first.key().0 <= now) else { return has_fired };
            let waker = first.remove();
            drop(timers);
            has_fired = true;
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").field("ready", &self.ready).finish_non_exhaustive()
    }
}
