//! What is to happen later: retries. One thread of the process waits for all of it; it begins with the first, and sleeps while
//! there is none.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::mem::MaybeUninit;
use std::sync::{Condvar, Mutex, MutexGuard, Weak};
use std::time::Instant;
use std::{io, ptr, thread};

use super::queue_pair::QueuePair;
use super::unpoisoned;
use crate::fork::PerProcess;

/// What the thread waits for.
#[derive(Debug)]
struct Queue {
    /// The earliest first.
    alarms: BinaryHeap<Reverse<Alarm>>,
    /// Orders those of the same time, so that the heap never compares queue pairs.
    next: u64,
    /// The thread waits.
    is_begun: bool,
}

/// What waits, and what tells the thread of something earlier.
static QUEUE: PerProcess<(Mutex<Queue>, Condvar)> = PerProcess::new(queue(), || Box::new(queue()));

const fn queue() -> (Mutex<Queue>, Condvar) {
    (Mutex::new(Queue { alarms: BinaryHeap::new(), next: 0, is_begun: false }), Condvar::new())
}

#[derive(Debug)]
struct Alarm {
    when: Instant,
    order: u64,
    pair: Weak<QueuePair>,
}

impl Alarm {
    fn key(&self) -> (Instant, u64) {
        (self.when, self.order)
    }
}

impl PartialEq for Alarm {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Alarm {}

impl PartialOrd for Alarm {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Alarm {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// Calls `QueuePair::expired` at that time, unless the queue pair is gone.
pub(crate) fn at(when: Instant, pair: Weak<QueuePair>) {
    let (queue, earlier) = QUEUE.get();
    let mut queue = unpoisoned(queue.lock());
    let is_earliest = queue.alarms.peek().is_none_or(|Reverse(first)| when < first.when);
    let order = queue.next;
    queue.next = queue.next.wrapping_add(1);
    queue.alarms.push(Reverse(Alarm { when, order, pair }));
    if !queue.is_begun {
        match begin() {
            Ok(()) => queue.is_begun = true,
            // The next one tries again; this one waits for it.
            Err(error) => log::error!("cannot start the thread that retries: {error}"),
        }
    } else if is_earliest {
        earlier.notify_one();
    }
}

/// Starts the thread, with all signals blocked: they are the program's. A new thread has the mask of the one that starts it.
fn begin() -> io::Result<()> {
    let before = block_signals()?;
    let thread = thread::Builder::new().name("softrnic".to_owned()).stack_size(256 << 10).spawn(wait);
    if let Some(before) = before {
        // SAFETY: it is a mask that the kernel gave; none is asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    }
    thread.map(drop)
}

/// Blocks all signals in this thread, and gives what was blocked before.
fn block_signals() -> io::Result<Option<libc::sigset_t>> {
    // Miri knows no signals.
    if cfg!(miri) {
        return Ok(None);
    }
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `all` is room for a set, which `sigfillset` fills in before `pthread_sigmask` reads it, and `before` is room for
    // the set that it stores.
    let result = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr())
    };
    match result {
        // SAFETY: the call has not failed, and so has stored the mask.
        0 => Ok(Some(unsafe { before.assume_init() })),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// The thread: for ever, as the process may need it again.
fn wait() {
    let (queue, earlier) = QUEUE.get();
    let mut queue = unpoisoned(queue.lock());
    loop {
        let now = Instant::now();
        queue = match queue.alarms.peek() {
            None => unpoisoned(earlier.wait(queue)),
            Some(Reverse(first)) if first.when > now => {
                let rest = first.when - now;
                unpoisoned(earlier.wait_timeout(queue, rest)).0
            }
            Some(_) => ring(queue),
        };
    }
}

/// Takes the earliest and tells its queue pair, with the lock let go.
fn ring(mut queue: MutexGuard<'static, Queue>) -> MutexGuard<'static, Queue> {
    let alarm = queue.alarms.pop();
    drop(queue);
    if let Some(pair) = alarm.and_then(|Reverse(alarm)| alarm.pair.upgrade()) {
        pair.expired();
    }
    unpoisoned(QUEUE.get().0.lock())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_earliest_alarm_comes_first() {
        let now = Instant::now();
        let mut alarms = BinaryHeap::new();
        for (order, delay) in [30, 10, 20, 10].into_iter().enumerate() {
            let when = now + Duration::from_millis(delay);
            alarms.push(Reverse(Alarm { when, order: order as u64, pair: Weak::new() }));
        }
        let orders: Vec<_> = std::iter::from_fn(|| alarms.pop()).map(|Reverse(alarm)| alarm.order).collect();
        assert_eq!(orders, [1, 3, 2, 0]);
    }
}
