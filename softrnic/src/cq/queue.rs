//! The completion queue.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use rdma_mummy_sys::ibv_wc_status;

use super::{Armed, Clocks, Completion};
use crate::cq::CompletionEvents;
use crate::sys::errno::Errno;
use crate::sys::{clock, unpoisoned};

/// A completion queue. The queue's memory grows with the number of completions, up to the capacity.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    inner: Mutex<Inner>,
    /// The length of `inner.completions`, readable without the lock.
    length: AtomicUsize,
    is_overrun: AtomicBool,
    ignores_overrun: bool,
    clocks: Clocks,
    events: Box<dyn CompletionEvents>,
}

#[derive(Debug)]
struct Inner {
    completions: VecDeque<Completion>,
    capacity: usize,
    armed: Armed,
    /// `Some` if completions were added since the last event, and the newest of them is not polled. The value is true
    /// if one of them was solicited.
    unannounced: Option<bool>,
}

impl Inner {
    /// Returns whether an event is due now. If so, the queue is no longer armed.
    fn take_due_event(&mut self) -> bool {
        let is_due = match self.armed {
            Armed::No => false,
            Armed::Solicited => self.unannounced == Some(true),
            Armed::Next => self.unannounced.is_some(),
        };
        if is_due {
            self.armed = Armed::No;
            self.unannounced = None;
        }
        is_due
    }
}

/// The result of adding a completion, reported after the lock is released.
enum AddResult {
    /// The completion was added, and no event was requested.
    Added,
    Completed,
    /// The queue was full, and this is the first completion that it lost.
    Overrun,
    /// The queue had lost a completion before, so it lost this one too.
    Lost,
}

impl CompletionQueue {
    /// Creates a queue with `capacity` entries that reports to `events`. If `ignores_overrun` is set and the queue is
    /// full, a new completion replaces the oldest one.
    pub(crate) fn new(capacity: u32, ignores_overrun: bool, events: Box<dyn CompletionEvents>) -> Self {
        Self {
            inner: Mutex::new(Inner {
                completions: VecDeque::new(),
                // The capacity is at least one, so that a completion that overruns the queue can replace another one.
                capacity: capacity.max(1) as usize,
                armed: Armed::No,
                unannounced: None,
            }),
            length: AtomicUsize::new(0),
            is_overrun: AtomicBool::new(false),
            ignores_overrun,
            clocks: Clocks::default(),
            events,
        }
    }

    /// Returns the queue after setting the clocks that it reads for each new completion.
    pub(crate) fn with_clocks(self, clocks: Clocks) -> Self {
        Self { clocks, ..self }
    }

    /// Adds a completion; `is_solicited` means that the peer requested an event. A completion in error always counts as
    /// solicited.
    ///
    /// An overrun puts the queue into a permanent error state: the queue accepts no further completions, and releases
    /// the slots of lost completions at once. Returns `false` if this completion is lost.
    pub(crate) fn push(&self, mut completion: Completion, is_solicited: bool) -> bool {
        if self.clocks.device {
            completion.timestamp = clock::device();
        }
        if self.clocks.wall {
            completion.wall_clock = clock::wall();
        }
        let is_solicited = is_solicited || completion.status != ibv_wc_status::IBV_WC_SUCCESS;
        // Events are reported after the lock is released, because an event may wake a thread that takes this lock.
        match self.add(completion, is_solicited) {
            AddResult::Lost => return false,
            AddResult::Overrun => {
                self.events.overrun();
                return false;
            }
            AddResult::Added => {}
            AddResult::Completed => self.events.completed(),
        }
        true
    }

    fn add(&self, completion: Completion, is_solicited: bool) -> AddResult {
        let mut inner = self.lock();
        if self.is_overrun() {
            release(completion);
            return AddResult::Lost;
        }
        if inner.completions.len() >= inner.capacity {
            if !self.ignores_overrun {
                self.is_overrun.store(true, Ordering::Release);
                release(completion);
                return AddResult::Overrun;
            }
            if let Some(lost) = inner.completions.pop_front() {
                release(lost);
            }
            self.removed(&mut inner);
        }
        inner.completions.push_back(completion);
        self.length.store(inner.completions.len(), Ordering::Release);
        inner.unannounced = Some(is_solicited || inner.unannounced == Some(true));
        if inner.take_due_event() { AddResult::Completed } else { AddResult::Added }
    }

    /// Removes and returns the oldest completion, and releases its slots. If the queue is empty, this function takes no
    /// lock.
    pub(crate) fn pop(&self) -> Option<Completion> {
        if self.is_empty() {
            return None;
        }
        let mut inner = self.lock();
        let completion = self.take(&mut inner);
        self.removed(&mut inner);
        completion
    }

    /// Removes up to `most` completions like [`pop`](Self::pop), but takes the lock only once, and returns their
    /// number.
    ///
    /// The function `each` is called with the lock held, and must not use this queue.
    pub(crate) fn drain(&self, most: usize, mut each: impl FnMut(usize, Completion)) -> usize {
        if self.is_empty() {
            return 0;
        }
        let mut inner = self.lock();
        let mut taken = 0;
        while taken < most
            && let Some(completion) = self.take(&mut inner)
        {
            each(taken, completion);
            taken += 1;
        }
        self.removed(&mut inner);
        taken
    }

    fn take(&self, inner: &mut Inner) -> Option<Completion> {
        let mut completion = inner.completions.pop_front()?;
        if let Some(slots) = completion.slots.take() {
            slots.release();
        }
        Some(completion)
    }

    /// Adapts the state after completions were removed.
    fn removed(&self, inner: &mut Inner) {
        if inner.completions.is_empty() {
            inner.unannounced = None;
        }
        self.length.store(inner.completions.len(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.length.load(Ordering::Acquire) == 0
    }

    /// Requests one event for the next completion. A request for any completion stays valid after a later request for
    /// solicited completions.
    ///
    /// If a completion was added since the last event and is not polled, this raises the event at once, as ConnectX
    /// does. The InfiniBand specification does not require it (volume 1, section 11.4.2.2), but programs such as UCX
    /// arm the queue after they have found it empty, and do not poll again before they sleep.
    pub(crate) fn arm(&self, armed: Armed) {
        let mut inner = self.lock();
        if inner.armed != Armed::Next {
            inner.armed = armed;
        }
        let is_due = inner.take_due_event();
        drop(inner);
        if is_due {
            self.events.completed();
        }
    }

    /// Changes the capacity. Returns `EINVAL` if the queue contains more completions than the new capacity.
    pub(crate) fn resize(&self, capacity: u32) -> Result<(), Errno> {
        let mut inner = self.lock();
        let capacity = capacity as usize;
        if capacity == 0 || capacity < inner.completions.len() {
            return Err(Errno::INVALID);
        }
        inner.capacity = capacity;
        Ok(())
    }

    pub(crate) fn capacity(&self) -> u32 {
        // The conversion is lossless: the value was a `u32`.
        self.lock().capacity as u32
    }

    /// Whether the queue has lost a completion and is therefore in error. The completions that it contains can still be
    /// polled.
    pub(crate) fn is_overrun(&self) -> bool {
        self.is_overrun.load(Ordering::Acquire)
    }

    /// Whether the queue has lost a completion and all earlier ones were polled. The queue accepts no completion after
    /// a lost one, so a result of true is final even if other threads try to add completions.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_overrun() && self.is_empty()
    }

    /// Removes the completions of a QP that is destroyed or reset.
    pub(crate) fn forget(&self, number: u32) {
        if self.is_empty() {
            return;
        }
        let mut inner = self.lock();
        inner.completions.retain_mut(|completion| {
            let stays = completion.number != number;
            if !stays && let Some(slots) = completion.slots.take() {
                slots.release();
            }
            stays
        });
        self.removed(&mut inner);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        unpoisoned(self.inner.lock())
    }
}

/// Releases the slots of a completion that will not be polled.
fn release(completion: Completion) {
    if let Some(slots) = completion.slots {
        slots.release();
    }
}
