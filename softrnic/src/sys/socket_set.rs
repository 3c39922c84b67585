//! The sockets of a transport. The thread of softrnic serves them, unless a thread of the program does: one that polls
//! empty completion queues, or that waits for an event.

use std::cell::Cell;
use std::cmp;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::descriptor::Descriptor;
use super::thread::{Place, Reactor, Task};
use super::unpoisoned;

/// A program counts as polling after this number of empty polls between two events. A program that waits for events
/// also polls until its queue is empty, but only a few times.
pub(crate) const POLLING_AFTER: u32 = 16;
/// A thread yields after this number of consecutive empty polls. If more threads poll than there are cores, the process
/// that must send the next packet may need this core.
const YIELD_AFTER: u32 = 64;
/// The interval at which the thread checks whether the program still serves the sockets.
pub(crate) const TICK: Duration = Duration::from_millis(1);
/// A program that has waited for an event waits again within this time, unless it does other work.
const LOOK: Duration = Duration::from_micros(300);
/// The maximum number of wake-ups after which the thread expects again that a program waits.
const MAX_PASSES: u32 = 256;
/// The ID of events of the sockets. The other descriptors of the transport have larger IDs.
pub(crate) const SOCKETS: u64 = 0;

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

/// Why the thread does not wait for the sockets.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Reason {
    /// A program polls.
    Polled = 1,
    /// A thread of the program waits for an event, and serves the sockets meanwhile.
    Waits = 2,
    /// A thread of the program has waited a moment ago, and probably waits again soon. See [`Expectation`].
    Expected = 4,
}

/// The sockets of a transport, in the place of the transport in the thread.
#[derive(Debug)]
pub(crate) struct SocketSet {
    pub(crate) place: Place,
    /// The epoll descriptor with the sockets.
    pub(crate) all: Descriptor,
    /// The [`Reason`]s why the thread does not wait for the sockets. They change only under the lock `change`.
    reasons: AtomicU8,
    change: Mutex<()>,
    /// Whether a program that waits has served the sockets since this flag was last cleared.
    has_served: AtomicBool,
}

impl SocketSet {
    /// Returns the set, and makes the thread serve it by the given task if it does not yet. Only one thread at a time may
    /// call this for a set.
    pub(crate) fn start(
        set: &'static OnceLock<Self>,
        thread: &'static Reactor,
        task: impl FnOnce(&'static Self) -> Box<dyn Task>,
    ) -> Result<&'static Self, Errno> {
        if set.get().is_none() {
            thread.add(|place| {
                let sockets = Self::new(place)?;
                Ok(task(set.get_or_init(|| sockets)))
            })?;
        }
        set.get().ok_or(Errno::NXIO)
    }

    fn new(place: Place) -> Result<Self, Errno> {
        let all = Descriptor::open(|| epoll::create(epoll::CreateFlags::CLOEXEC))?;
        place.watch(&all, SOCKETS, epoll::EventFlags::IN)?;
        let (reasons, change, has_served) = (AtomicU8::new(0), Mutex::new(()), AtomicBool::new(false));
        Ok(Self { place, all, reasons, change, has_served })
    }

    pub(crate) fn add(&self, socket: &Descriptor, id: u64, flags: epoll::EventFlags) -> Result<(), Errno> {
        epoll::add(&self.all, socket, epoll::EventData::new_u64(id), flags)
    }

    pub(crate) fn remove(&self, socket: &Descriptor) {
        _ = epoll::delete(&self.all, socket);
    }

    /// Whether the thread does not wait for the sockets.
    #[inline]
    pub(crate) fn is_attended(&self) -> bool {
        self.reasons.load(Ordering::SeqCst) != 0
    }

    #[inline]
    pub(crate) fn has(&self, reason: Reason) -> bool {
        self.reasons.load(Ordering::SeqCst) & reason as u8 != 0
    }

    /// Adds a reason not to wait for the sockets. Returns whether it is new.
    #[inline]
    pub(crate) fn hold(&self, reason: Reason) -> bool {
        !self.has(reason) && {
            let _change = unpoisoned(self.change.lock());
            let before = self.reasons.fetch_or(reason as u8, Ordering::SeqCst);
            if before == 0 {
                self.set_watching(false);
            }
            before & reason as u8 == 0
        }
    }

    /// Removes a reason. After the last one, the thread waits for the sockets.
    pub(crate) fn release(&self, reason: Reason) {
        if self.has(reason) {
            let _change = unpoisoned(self.change.lock());
            if self.reasons.fetch_and(!(reason as u8), Ordering::SeqCst) == reason as u8 {
                self.set_watching(true);
            }
        }
    }

    fn set_watching(&self, is_watching: bool) {
        let flags = if is_watching { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        if let Err(error) = self.place.rewatch(&self.all, SOCKETS, flags) {
            rdma_mummy_sys::log!(error, "cannot wait for peers: epoll failed: {error}");
        }
    }

    /// See `Sockets::attend` in `wire`.
    pub(crate) fn attend(&self) -> Option<BorrowedFd<'_>> {
        self.hold(Reason::Waits).then(|| self.all.as_fd())
    }

    /// Records that a program that waits serves the sockets. A wait may end without that, for example if the program
    /// always has another descriptor that is ready.
    pub(crate) fn served(&self) {
        self.has_served.store(true, Ordering::Relaxed);
    }

    /// Calls `handle` with the ID and the events of each socket that is ready.
    pub(crate) fn each_ready(&self, mut handle: impl FnMut(u64, epoll::EventFlags)) {
        let mut events = [const { MaybeUninit::uninit() }; 64];
        match epoll::wait(&self.all, &mut events, Some(&Timespec::default())) {
            Ok((events, _)) => events.iter().for_each(|event| handle(event.data.u64(), event.flags)),
            Err(Errno::INTR) => {}
            Err(error) => rdma_mummy_sys::log!(error, "cannot wait for peers: epoll failed: {error}"),
        }
    }
}

/// Whether the thread expects that a program waits for events again soon.
///
/// If a packet arrives between two waits of a program, the thread would wake up, and compete with the program for a
/// processor and for the locks. The program would receive the packet at its next wait anyway. So after such a wake-up, the
/// thread does not wait for the sockets, but only looks from time to time. If the program has not served them meanwhile,
/// it may do other work, and the thread waits for the sockets again.
#[derive(Debug)]
pub(crate) struct Expectation {
    sockets: &'static SocketSet,
    /// The time of the next look, while the thread expects that the program waits.
    pub(crate) next_look: Option<Instant>,
    /// How many wake-ups follow until the thread expects that again.
    passes: u32,
    /// The value of `passes` after the next disappointment.
    next_passes: u32,
}

impl Expectation {
    pub(crate) fn new(sockets: &'static SocketSet) -> Self {
        Self { sockets, next_look: None, passes: 0, next_passes: 1 }
    }

    /// Handles a wake-up of the thread by a socket.
    pub(crate) fn woken(&mut self) {
        if self.next_look.is_some() || !self.sockets.has_served.swap(false, Ordering::Relaxed) {
            return;
        }
        if self.passes > 0 {
            self.passes -= 1;
        } else {
            self.next_look = Some(Instant::now() + LOOK);
            self.sockets.hold(Reason::Expected);
        }
    }

    /// Looks whether the program has served the sockets, if it is time. Returns whether the thread now must look at the sockets.
    pub(crate) fn look(&mut self) -> bool {
        let Some(next_look) = self.next_look else { return false };
        let now = Instant::now();
        if now < next_look {
            return false;
        }
        if self.sockets.has_served.swap(false, Ordering::Relaxed) {
            self.next_look = Some(now + LOOK);
            self.next_passes = (self.next_passes / 2).max(1);
        } else {
            self.next_look = None;
            self.passes = self.next_passes;
            self.next_passes = (self.next_passes * 2).min(MAX_PASSES);
            self.sockets.release(Reason::Expected);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::EventfdFlags;

    use super::*;
    use crate::sys::thread::{Next, Reactor, Task};

    struct Idle;

    impl Task for Idle {
        fn turn(&mut self) -> Next {
            Next::Never
        }
    }

    /// Returns a set with a socket that is ready.
    fn ready() -> (&'static SocketSet, Descriptor) {
        let place = Reactor::not_started().add(|_| Ok(Box::new(Idle))).unwrap();
        let set: &SocketSet = Box::leak(Box::new(SocketSet::new(place).unwrap()));
        let socket = Descriptor::open(|| rustix::event::eventfd(1, EventfdFlags::CLOEXEC)).unwrap();
        set.add(&socket, 1, epoll::EventFlags::IN).unwrap();
        (set, socket)
    }

    /// Makes the next look, whose time has come.
    fn look(expectation: &mut Expectation) {
        expectation.next_look = expectation.next_look.map(|_| Instant::now());
        expectation.look();
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn thread_waits_after_the_last_reason_against_it() {
        let (set, _socket) = ready();
        assert!(!set.place.is_quiet() && set.hold(Reason::Polled) && set.place.is_quiet());
        assert!(set.attend().is_some() && set.attend().is_none());
        set.release(Reason::Polled);
        assert!(set.is_attended() && set.place.is_quiet());
        set.release(Reason::Waits);
        assert!(!set.is_attended() && !set.place.is_quiet());
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn threads_that_come_and_go_leave_the_sockets_watched() {
        let (set, _socket) = ready();
        thread::scope(|scope| {
            for reason in [Reason::Polled, Reason::Waits, Reason::Expected] {
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        assert!(set.hold(reason) && set.is_attended());
                        set.release(reason);
                    }
                });
            }
        });
        assert!(!set.is_attended() && !set.place.is_quiet());
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn packet_between_two_waits_wakes_the_thread_once() {
        let (set, _socket) = ready();
        let mut expectation = Expectation::new(set);
        let wait_without_service = || {
            set.attend().unwrap();
            set.release(Reason::Waits);
        };
        let wait = || {
            set.served();
            wait_without_service();
        };
        wait_without_service();
        expectation.woken();
        assert!(!set.place.is_quiet(), "no program has served the sockets");
        wait();
        expectation.woken();
        for _ in 0..10 {
            assert!(set.place.is_quiet());
            wait();
            look(&mut expectation);
        }
        // The program does other work, or its waits end at once.
        wait_without_service();
        look(&mut expectation);
        assert!(!set.place.is_quiet());
        // The more often it does so, the later the thread expects again that it waits.
        for expected in [1, 2, 4, 8] {
            let wakes = (0..).take_while(|_| {
                wait();
                expectation.woken();
                !set.place.is_quiet()
            });
            assert_eq!(wakes.count(), expected);
            look(&mut expectation);
            look(&mut expectation);
        }
    }
}
