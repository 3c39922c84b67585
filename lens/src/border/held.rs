//! Completions that faults hold back, and what becomes of each that a device reports.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rdma_mummy_sys::*;

use super::completion::{Attributed, Completion, attribute};
use super::line::{Line, Until, WorkQueue};
use super::queue_pair::QueuePair;
use super::saved::Saved;
use super::waker::Waker;
use crate::faults::{self, Completed, Fate};
use crate::state;

/// How long a completion waits for one of another queue to overtake it, in nanoseconds.
const OVERTAKEN: u64 = 10_000_000;

/// What a completion queue has for its faults.
#[derive(Debug)]
pub(super) struct Queue {
    /// The thread that polls; zero for none.
    polled_by: AtomicU32,
    line: Mutex<Line<Saved>>,
    /// Queue pairs that enter the error state after the poll.
    broken: Mutex<Vec<&'static QueuePair>>,
    /// Whether the program has asked for an event that it has not got.
    is_armed: AtomicBool,
    waker: Mutex<Option<Result<Arc<Waker>, String>>>,
}

static QUEUES: Mutex<BTreeMap<usize, Arc<Queue>>> = Mutex::new(BTreeMap::new());
/// How many completions are held back.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// How many queues have a waker.
static WAKERS: AtomicUsize = AtomicUsize::new(0);

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The states are consistent even if a thread panicked with a lock held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn queues() -> MutexGuard<'static, BTreeMap<usize, Arc<Queue>>> {
    unpoisoned(&QUEUES)
}

/// What a completion queue has for its faults.
pub(super) fn queue(cq: *const ibv_cq) -> Arc<Queue> {
    let new = || {
        Arc::new(Queue {
            polled_by: AtomicU32::new(0),
            line: Mutex::new(Line::new()),
            broken: Mutex::default(),
            is_armed: AtomicBool::new(false),
            waker: Mutex::new(None),
        })
    };
    Arc::clone(queues().entry(cq.addr()).or_insert_with(new))
}

fn known(cq: *const ibv_cq) -> Option<Arc<Queue>> {
    queues().get(&cq.addr()).cloned()
}

fn all() -> Vec<Arc<Queue>> {
    queues().values().cloned().collect()
}

pub(super) fn holds_completions() -> bool {
    HELD.load(Ordering::SeqCst) > 0
}

/// Whether completion queues have wakers. Those of the parent are not those of a child that was forked, where a lock may
/// never be free.
#[inline]
fn has_wakers() -> bool {
    WAKERS.load(Ordering::SeqCst) > 0 && !state::is_child()
}

/// Whether completions take another course than that of the device.
pub(super) fn alters_completions() -> bool {
    faults::alters_completions() || holds_completions()
}

/// `count` completions are no longer held back.
fn released(count: usize) {
    if HELD.fetch_sub(count, Ordering::SeqCst) == count {
        // The lens may have ended.
        faults::rest(holds_completions);
    }
}

impl Queue {
    /// Waits until no other thread polls. `false` if this thread does.
    pub(super) fn begin(&self) -> bool {
        let own = state::thread();
        loop {
            match self.polled_by.compare_exchange_weak(0, own, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) if other == own => return false,
                Err(_) => thread::yield_now(),
            }
        }
    }

    /// Ends the poll. The driver's lock is free.
    pub(super) fn end(&self) {
        let broken = std::mem::take(&mut *unpoisoned(&self.broken));
        self.polled_by.store(0, Ordering::Release);
        broken.into_iter().for_each(|pair| pair.faults.break_down());
    }

    /// The next completion that was held back and that the program may get now. The device has no other completions if
    /// `is_empty` is set.
    pub(super) fn take(&self, is_empty: bool) -> Option<Saved> {
        if !holds_completions() {
            return None;
        }
        let now = if faults::are_in_force() { state::now() } else { u64::MAX };
        let taken = unpoisoned(&self.line).take(now, is_empty, is_free);
        if taken.is_some() {
            released(1);
        }
        taken
    }

    fn is_due(&self, now: u64) -> bool {
        unpoisoned(&self.line).is_due(now, is_free)
    }

    /// Why completions of this queue cannot be held back for a time.
    fn refusal(&self, cq: &ibv_cq) -> Option<String> {
        if cq.channel.is_null() {
            return None;
        }
        match &*unpoisoned(&self.waker) {
            Some(Ok(_)) => None,
            Some(Err(reason)) => Some(reason.clone()),
            None => Some("the completion queue was made before the schedule was in force".to_owned()),
        }
    }

    /// Decides about a completion that the driver has just reported. Returns it if the program gets it now.
    pub(super) fn settle(
        &self,
        on: u8,
        cq: &ibv_cq,
        number: u32,
        mut completion: Completion,
        save: impl FnOnce(Completion, Attributed) -> Saved,
    ) -> Option<(Completion, Attributed)> {
        let mut attributed = attribute(on, number, cq, cq.context, &mut completion);
        let Some(pair) = attributed.pair else { return Some((completion, attributed)) };
        let is_receive = attributed.is_receive;
        let is_success = completion.status == ibv_wc_status::IBV_WC_SUCCESS;
        let address = ptr::from_ref(pair).addr();
        let of = if attributed.is_either { WorkQueue::either(address) } else { WorkQueue::of(address, is_receive) };
        let completed = Completed { wr_id: completion.wr_id, is_receive, is_success };
        let mut fate = faults::fate(&pair.faults, completed);
        let refusal = matches!(fate, Fate::Delay(_) | Fate::Reorder).then(|| self.refusal(cq)).flatten();
        let is_refused = refusal.is_some();
        faults::trace_fate(&pair.faults, fate, completed, refusal);
        if is_refused {
            fate = Fate::Pass;
        }
        let now = state::now();
        let mut line = unpoisoned(&self.line);
        if matches!(fate, Fate::Delay(_) | Fate::Reorder) && !faults::are_in_force() {
            // The lens has ended meanwhile, and has woken the program perhaps before it had the lock.
            fate = Fate::Pass;
        }
        let until = match fate {
            Fate::Lose => return None,
            Fate::Delay(time) => Some(Until::Time(now.saturating_add(time.as_nanos().try_into().unwrap_or(u64::MAX)))),
            Fate::Reorder => Some(Until::Overtaken(now.saturating_add(OVERTAKEN))),
            // A device completes the failed request first, and then flushes.
            Fate::Pass if is_receive && !is_success && pair.faults.expects_failure() && pair.has_one_queue() => {
                Some(Until::Failure)
            }
            Fate::Pass => None,
            Fate::Complete { status, is_first } => {
                (completion.status, attributed.is_injected) = (status, true);
                if is_first {
                    unpoisoned(&self.broken).push(pair);
                }
                None
            }
        };
        let Some(until) = until.or_else(|| line.has(of).then_some(Until::Earlier)) else {
            line.pass(of);
            return Some((completion, attributed));
        };
        HELD.fetch_add(1, Ordering::SeqCst);
        line.hold(of, until, save(completion, attributed));
        faults::stay();
        drop(line);
        if let Until::Time(time) | Until::Overtaken(time) = until
            && !cq.channel.is_null()
        {
            faults::wake_at(time);
        }
        None
    }

    /// Raises an event if the program waits for one and may get a completion.
    fn wake(&self, now: u64) {
        if self.is_due(now)
            && let Some(Ok(waker)) = &*unpoisoned(&self.waker)
            && self.is_armed.swap(false, Ordering::SeqCst)
        {
            waker.raise();
        }
    }
}

fn is_free(saved: &Saved) -> bool {
    !faults::are_in_force() || saved.attributed.pair.is_none_or(|pair| !pair.faults.expects_failure())
}

/// Raises the events that are due. Returns the time of the next one.
pub(super) fn wake(now: u64) -> Option<u64> {
    let queues = all();
    queues.iter().for_each(|queue| queue.wake(now));
    queues.iter().filter_map(|queue| unpoisoned(&queue.line).next_time(now)).min()
}

/// Holds nothing back any more, and raises the events of what was.
pub(super) fn release() {
    all().iter().for_each(|queue| unpoisoned(&queue.line).release());
    wake(u64::MAX);
}

/// Prepares a completion queue: completions of it may be held back while the program sleeps.
///
/// # Safety
///
/// `cq` is null or live.
pub(super) unsafe fn prepare(cq: *mut ibv_cq) {
    // SAFETY: guaranteed by the caller.
    let Some(channel) = (unsafe { cq.as_ref() }).map(|cq| cq.channel).filter(|channel| !channel.is_null()) else {
        return;
    };
    let queue = queue(cq);
    let mut place = unpoisoned(&queue.waker);
    if place.is_none() {
        // SAFETY: the queue is live, and so is its channel.
        let waker = unsafe { Waker::new((*cq).context, channel) };
        WAKERS.fetch_add(usize::from(waker.is_ok()), Ordering::SeqCst);
        *place = Some(waker.map(Arc::new));
    }
}

/// The program asks for an event.
#[inline]
pub(super) fn armed(cq: *const ibv_cq) {
    if has_wakers()
        && let Some(queue) = known(cq)
    {
        queue.is_armed.store(true, Ordering::SeqCst);
    }
}

/// A completion queue is about to be destroyed: its channel must not be in use afterwards. Waits until the program has
/// acknowledged the events that were raised, as `ibv_destroy_cq` does. Returns whether the queue had a waker.
pub(super) fn retire(cq: *const ibv_cq) -> bool {
    let Some(queue) = known(cq) else { return false };
    let waker = match &*unpoisoned(&queue.waker) {
        Some(Ok(waker)) => Arc::clone(waker),
        _ => return false,
    };
    if waker.destroy() {
        // If the queue stays, the program still waits for this event, see `stay`.
        queue.is_armed.store(true, Ordering::SeqCst);
    }
    *unpoisoned(&queue.waker) = None;
    WAKERS.fetch_sub(1, Ordering::SeqCst);
    true
}

/// A completion queue that had a waker was not destroyed. Raises the event that was due meanwhile.
///
/// # Safety
///
/// `cq` is live.
pub(super) unsafe fn stay(cq: *mut ibv_cq) {
    // SAFETY: guaranteed by the caller.
    unsafe { prepare(cq) };
    wake(state::now()).into_iter().for_each(faults::wake_at);
}

/// A completion queue was destroyed, and its completions with it.
pub(super) fn forget(cq: *const ibv_cq) {
    if let Some(queue) = queues().remove(&cq.addr()) {
        released(unpoisoned(&queue.line).len());
    }
}

/// A queue pair was destroyed or reset, and its completions with it.
pub(super) fn forget_pair(pair: &QueuePair) {
    if !alters_completions() || state::is_child() {
        return;
    }
    for queue in all() {
        // Its record may be that of another queue pair soon.
        unpoisoned(&queue.broken).retain(|broken| !ptr::eq(*broken, pair));
        let mut line = unpoisoned(&queue.line);
        let before = line.len();
        line.remove(ptr::from_ref(pair).addr());
        let removed = before - line.len();
        drop(line);
        released(removed);
    }
}

/// Turns the event of a waker into that of its completion queue.
///
/// # Safety
///
/// `ibv_get_cq_event` has stored these values.
pub(super) unsafe fn translate(cq: *mut *mut ibv_cq, context: *mut *mut std::ffi::c_void) {
    if !has_wakers() {
        return;
    }
    // SAFETY: guaranteed by the caller; the queue of the event lives until the event is acknowledged, and so does the
    // queue for which it was raised, see `retire`.
    unsafe {
        let found = queues().iter().find_map(|(address, queue)| match &*unpoisoned(&queue.waker) {
            Some(Ok(waker)) if waker.is_queue(*cq) => Some((*address, Arc::clone(queue), Arc::clone(waker))),
            _ => None,
        });
        match found {
            Some((address, queue, waker)) => {
                waker.taken();
                *cq = ptr::with_exposed_provenance_mut(address);
                *context = (**cq).cq_context;
                queue.is_armed.store(false, Ordering::SeqCst);
            }
            None => {
                if let Some(queue) = known(*cq) {
                    queue.is_armed.store(false, Ordering::SeqCst);
                }
            }
        }
    }
}

/// Acknowledges those of `count` events of a completion queue that its waker has raised. Returns the number of the others.
pub(super) fn acknowledge(cq: *const ibv_cq, count: u32) -> u32 {
    if !has_wakers() {
        return count;
    }
    let waker = known(cq).and_then(|queue| match &*unpoisoned(&queue.waker) {
        Some(Ok(waker)) => Some(Arc::clone(waker)),
        _ => None,
    });
    waker.map_or(count, |waker| waker.acknowledge(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another thread of the parent may hold the lock at the fork; then it is never free in the child.
    #[test]
    #[cfg_attr(miri, ignore = "forks")]
    fn child_does_not_wait_for_a_lock_of_its_parent() {
        extern "C" fn in_parent() {}
        state::watch_forks(in_parent);
        WAKERS.fetch_add(1, Ordering::SeqCst);
        let locked = queues();
        // SAFETY: the child only calls functions that take no lock, and libc.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(20);
                let cq = ptr::without_provenance(8);
                armed(cq);
                libc::_exit(acknowledge(cq, 3).cast_signed());
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            status
        };
        drop(locked);
        WAKERS.fetch_sub(1, Ordering::SeqCst);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 3, "{status:#x}");
    }
}
