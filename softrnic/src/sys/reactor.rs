//! Waiting for the sockets of a transport. A thread of softrnic serves them, unless a thread of the program does: one
//! that polls empty completion queues, or that waits for an event.

use std::cell::Cell;
use std::cmp;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec, epoll};
use rustix::io::Errno;

use super::descriptor::Descriptor;

/// A program counts as polling after this number of empty polls between two events. A program that waits for events
/// also polls until its queue is empty, but only a few times.
pub(crate) const POLLING_AFTER: u32 = 16;
/// A thread yields after this number of consecutive empty polls. If more threads poll than there are cores, the process
/// that must send the next packet may need this core.
const YIELD_AFTER: u32 = 64;
/// The interval at which the thread checks whether the program still serves the sockets.
pub(crate) const TICK: Duration = Duration::from_millis(1);
/// How long the thread waits after an error before it tries again.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
/// The ID of the wake-ups.
const WAKE: u64 = 0;
/// The ID of events of the sockets. Other sources have larger IDs.
pub(crate) const SOCKETS: u64 = 1;

thread_local! {
    /// The number of consecutive empty polls of this thread.
    static EMPTY: Cell<u32> = const { Cell::new(0) };
}

/// The number of polls since a program has last requested an event or the thread has last checked.
#[derive(Debug)]
pub(crate) struct Polls(AtomicU32);

impl Polls {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Counts a poll. The result is `Equal` at the poll with which the program begins to count as polling, `Less` before
    /// and `Greater` after it.
    #[inline]
    pub(crate) fn count(&self) -> cmp::Ordering {
        self.0.fetch_add(1, Ordering::Relaxed).cmp(&POLLING_AFTER)
    }
}

/// Records the result of a poll of this thread, and yields after many consecutive empty polls.
#[inline]
pub(crate) fn yield_if_empty(has_found: bool) {
    let empty = if has_found { 0 } else { EMPTY.get() + 1 };
    EMPTY.set(empty % YIELD_AFTER);
    if empty == YIELD_AFTER {
        thread::yield_now();
    }
}

/// The descriptors on which a thread of softrnic waits.
#[derive(Debug)]
pub(crate) struct Reactor {
    /// The sockets that a program may serve in place of the thread.
    pub(crate) sockets: Descriptor,
    wake: Descriptor,
    /// The descriptor on which the thread waits. It contains all others, but the sockets only while no program serves
    /// them.
    all: Descriptor,
}

impl Reactor {
    pub(crate) fn new() -> Result<Self, Errno> {
        let epoll = || Descriptor::open(|| epoll::create(epoll::CreateFlags::CLOEXEC));
        let wake = Descriptor::open(|| rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))?;
        let reactor = Self { sockets: epoll()?, wake, all: epoll()? };
        reactor.watch(&reactor.wake, WAKE)?;
        reactor.watch(&reactor.sockets, SOCKETS)?;
        Ok(reactor)
    }

    pub(crate) fn wake(&self) {
        // The write fails only if a wake-up is already pending.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    pub(crate) fn watch(&self, descriptor: &Descriptor, id: u64) -> Result<(), Errno> {
        epoll::add(&self.all, descriptor, epoll::EventData::new_u64(id), epoll::EventFlags::IN)
    }

    pub(crate) fn unwatch(&self, descriptor: &Descriptor) {
        let _ = epoll::delete(&self.all, descriptor);
    }

    /// Sets whether the thread waits for the sockets.
    pub(crate) fn set_watching(&self, is_watching: bool) {
        let flags = if is_watching { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        if let Err(error) = epoll::modify(&self.all, &self.sockets, epoll::EventData::new_u64(SOCKETS), flags) {
            rdma_mummy_sys::log!(error, "cannot wait for peers: epoll failed: {error}");
        }
    }

    /// Waits until there is an event, a wake-up or a time-out. Calls `handle` with the ID of each event.
    pub(crate) fn wait(&self, timeout: Option<Duration>, mut handle: impl FnMut(u64)) {
        let mut events = [const { MaybeUninit::uninit() }; 64];
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let events = match epoll::wait(&self.all, &mut events, timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return,
            Err(error) => {
                rdma_mummy_sys::log!(error, "cannot wait for peers: epoll failed: {error}");
                return thread::sleep(PAUSE);
            }
        };
        for event in events {
            match event.data.u64() {
                WAKE => _ = rustix::io::read(&self.wake, &mut [0; 8]),
                id => handle(id),
            }
        }
    }

    /// Whether the thread would wait.
    #[cfg(test)]
    pub(crate) fn is_quiet(&self) -> bool {
        use rustix::event::{PollFd, PollFlags};
        let mut poll = [PollFd::new(&self.all, PollFlags::IN)];
        rustix::event::poll(&mut poll, Some(&Timespec::default())).is_ok_and(|count| count == 0)
    }
}
