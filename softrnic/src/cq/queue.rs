//! The queue itself.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use rdma_mummy_sys::ibv_wc_status;

use super::{Armed, Clocks, Completion};
use crate::cq::CompletionEvents;
use crate::sys::errno::Errno;
use crate::sys::{clock, unpoisoned};

/// A completion queue. Its memory grows with what waits in it, up to its capacity.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    inner: Mutex<Inner>,
    /// As many as there are in `inner`, for a look without the lock.
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
}

/// What is to be told once the lock is gone.
enum News {
    /// Added, and nobody has asked for an event.
    Added,
    Completed,
    /// It finds no room, and is the first.
    Overrun,
    /// It comes after one that found no room.
    Lost,
}

impl CompletionQueue {
    /// `capacity` entries, and told of by `events`. With `ignores_overrun` a completion for which there is no room takes the place
    /// of the oldest.
    pub(crate) fn new(capacity: u32, ignores_overrun: bool, events: Box<dyn CompletionEvents>) -> Self {
        Self {
            inner: Mutex::new(Inner {
                completions: VecDeque::new(),
                // At least one, so that there is an oldest.
                capacity: capacity.max(1) as usize,
                armed: Armed::No,
            }),
            length: AtomicUsize::new(0),
            is_overrun: AtomicBool::new(false),
            ignores_overrun,
            clocks: Clocks::default(),
            events,
        }
    }

    /// Reads these clocks for each completion that comes.
    pub(crate) fn with_clocks(self, clocks: Clocks) -> Self {
        Self { clocks, ..self }
    }

    /// Adds a completion; `is_solicited` where the peer asked for an event. Errors count as solicited.
    ///
    /// Where there is no room, the queue is in error from then on: nothing is added any more, and the slots of what is lost are given
    /// back at once. `false` where this one is lost.
    pub(crate) fn push(&self, mut completion: Completion, is_solicited: bool) -> bool {
        if self.clocks.device {
            completion.timestamp = clock::device();
        }
        if self.clocks.wall {
            completion.wall_clock = clock::wall();
        }
        let is_solicited = is_solicited || completion.status != ibv_wc_status::IBV_WC_SUCCESS;
        // The events are told without the lock: they wake threads, which come for it.
        match self.add(completion, is_solicited) {
            News::Lost => return false,
            News::Overrun => {
                self.events.overrun();
                return false;
            }
            News::Added => {}
            News::Completed => self.events.completed(),
        }
        true
    }

    fn add(&self, completion: Completion, is_solicited: bool) -> News {
        let mut inner = self.lock();
        if self.is_overrun() {
            release(completion);
            return News::Lost;
        }
        if inner.completions.len() >= inner.capacity {
            if !self.ignores_overrun {
                self.is_overrun.store(true, Ordering::Release);
                release(completion);
                return News::Overrun;
            }
            if let Some(lost) = inner.completions.pop_front() {
                release(lost);
            }
        }
        inner.completions.push_back(completion);
        self.length.store(inner.completions.len(), Ordering::Release);
        let is_asked_for = match inner.armed {
            Armed::No => false,
            Armed::Solicited => is_solicited,
            Armed::Next => true,
        };
        if !is_asked_for {
            return News::Added;
        }
        inner.armed = Armed::No;
        News::Completed
    }

    /// Takes the oldest, and gives back the slots that it held. Without a lock where there is none.
    pub(crate) fn pop(&self) -> Option<Completion> {
        if self.is_empty() {
            return None;
        }
        let mut inner = self.lock();
        let completion = self.take(&mut inner);
        self.length.store(inner.completions.len(), Ordering::Release);
        completion
    }

    /// Takes the oldest up to `most` as [`pop`](Self::pop) does, with the lock taken once; how many there were.
    ///
    /// `each` is called with the lock held, and does not come back to this queue.
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
        self.length.store(inner.completions.len(), Ordering::Release);
        taken
    }

    fn take(&self, inner: &mut Inner) -> Option<Completion> {
        let mut completion = inner.completions.pop_front()?;
        if let Some(slots) = completion.slots.take() {
            slots.release();
        }
        Some(completion)
    }

    /// Whether there is nothing to take.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.length.load(Ordering::Acquire) == 0
    }

    /// Asks for one event, at the next completion that comes; for what is there already there is none, as the InfiniBand specification
    /// has it (volume 1, section 11.4.2.2). Who has asked for any is not set back to solicited ones.
    pub(crate) fn arm(&self, armed: Armed) {
        let mut inner = self.lock();
        if inner.armed != Armed::Next {
            inner.armed = armed;
        }
    }

    /// Changes the capacity; `EINVAL` where there is more in it.
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
        // Lossless: it was a `u32`.
        self.lock().capacity as u32
    }

    /// Whether a completion was lost for want of room: the queue is in error, and what is in it can still be taken.
    pub(crate) fn is_overrun(&self) -> bool {
        self.is_overrun.load(Ordering::Acquire)
    }

    /// Whether a completion was lost, and those before it are taken. Nothing comes behind the lost one, so that what another thread has
    /// added until then is seen here.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_overrun() && self.is_empty()
    }

    /// Forgets what it has of a queue pair that is destroyed or reset.
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
        self.length.store(inner.completions.len(), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        unpoisoned(self.inner.lock())
    }
}

/// Gives back the slots of a completion that nobody will take.
fn release(completion: Completion) {
    if let Some(slots) = completion.slots {
        slots.release();
    }
}
