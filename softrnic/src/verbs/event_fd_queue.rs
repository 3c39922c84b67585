//! Event queues for completion channels and for asynchronous events. Each queue has a descriptor that is readable while
//! the queue is not empty. A queue for asynchronous events also reports changes of the host's addresses.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd};

use crate::sys::addresses::{self, Address};
use crate::sys::changes::Changes;
use crate::sys::errno::Errno;
use crate::sys::{signals, unpoisoned};

/// A queue with an eventfd. The eventfd is written for each event, so that a program that waits for edges is also
/// woken. The eventfd is read when the queue becomes empty.
///
/// The program uses an epoll descriptor that contains the eventfd. An eventfd is always writable, and the descriptors
/// of the kernel's channels never are: a program that waits for both would spin.
///
/// System calls bypass libc, whose functions are cancellation points. `pthread_cancel` cannot unwind Rust functions,
/// and must not unwind a thread that holds a lock. A thread that is cancelled while it waits therefore continues to
/// wait until there is an event, or until a signal arrives whose handler does not restart system calls.
#[derive(Debug)]
pub(crate) struct EventFdQueue<T> {
    events: Mutex<VecDeque<T>>,
    /// The eventfd, in non-blocking mode.
    eventfd: OwnedFd,
    /// The descriptor that the program uses.
    descriptor: OwnedFd,
    watch: Option<Watch<T>>,
}

/// The changes of the host's addresses that also raise an event.
#[derive(Debug)]
struct Watch<T> {
    changes: Changes,
    /// The addresses that were last reported to the program.
    reported: Mutex<Vec<Address>>,
    event: fn() -> T,
}

impl<T> EventFdQueue<T> {
    /// Creates an empty queue. As in the kernel, its descriptor is in blocking mode until the program changes the mode.
    ///
    /// # Errors
    ///
    /// Returns an error of `eventfd(2)` or `epoll_create(2)`: `EMFILE`, `ENFILE`, `ENODEV` or `ENOMEM`; `ENOSPC` if the
    /// user has too many descriptors in epoll descriptors.
    pub(crate) fn new() -> Result<Self, Errno> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(errno)?;
        let descriptor = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(errno)?;
        let event_fd_queue = Self { events: Mutex::new(VecDeque::new()), eventfd, descriptor, watch: None };
        event_fd_queue.report(event_fd_queue.eventfd.as_fd())?;
        Ok(event_fd_queue)
    }

    /// Creates a queue that also raises an event when the host's addresses change, if the kernel reports these changes.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub(crate) fn watching(event: fn() -> T) -> Result<Self, Errno> {
        let mut event_fd_queue = Self::new()?;
        if let Some(changes) = Changes::new() {
            event_fd_queue.report(changes.as_fd())?;
            event_fd_queue.watch = Some(Watch { changes, reported: Mutex::new(addresses::all()), event });
        }
        Ok(event_fd_queue)
    }

    /// Makes the program's descriptor readable while `descriptor` is.
    fn report(&self, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&self.descriptor, descriptor, data, epoll::EventFlags::IN).map_err(errno)
    }

    /// Returns the descriptor that the program uses.
    pub(crate) fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Adds an event to the queue. This function never blocks.
    pub(crate) fn put(&self, event: T) {
        let mut events = self.lock();
        events.push_back(event);
        // The write could block only if the sum of all unread values reached 2^64 - 1.
        let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
    }

    /// Takes the oldest event. If the queue is empty, the call blocks, or fails with `EAGAIN` if the program has set
    /// `O_NONBLOCK`. As with `read(2)`, a signal ends the call with `EINTR`, unless the handler of the signal restarts
    /// system calls (`SA_RESTART`).
    ///
    /// Calls `seen` with the event while [`remove`](Self::remove) cannot run. When an object is destroyed, its events
    /// are therefore either still in the queue or already counted as taken.
    pub(crate) fn take<R>(&self, seen: impl FnOnce(T) -> R) -> Result<R, Errno> {
        // A program in blocking mode may already have found the descriptor readable.
        let is_nonblocking = self.is_nonblocking()?;
        let mut is_awaited = !is_nonblocking;
        loop {
            self.check_changes(is_awaited);
            is_awaited = false;
            let mut events = self.lock();
            if let Some(event) = self.pop(&mut events) {
                return Ok(seen(event));
            }
            drop(events);
            if is_nonblocking {
                return Err(Errno::AGAIN);
            }
            // Another thread may take the event, so the loop checks again.
            self.wait(None)?;
        }
    }

    /// Takes the oldest event like [`take`](Self::take), but returns `None` if the queue is empty.
    pub(crate) fn try_take<R>(&self, seen: impl FnOnce(T) -> R) -> Option<R> {
        let mut events = self.lock();
        self.pop(&mut events).map(seen)
    }

    fn pop(&self, events: &mut VecDeque<T>) -> Option<T> {
        let event = events.pop_front()?;
        if events.is_empty() {
            self.clear();
        }
        Some(event)
    }

    /// Waits until there is an event, or until another descriptor is readable.
    ///
    /// # Errors
    ///
    /// `EINTR` if a signal ends the call, as for [`take`](Self::take); `EBADF` if the program has closed the
    /// descriptor.
    pub(crate) fn wait(&self, other: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        match poll(self.as_fd(), other, None) {
            Err(Errno(libc::EINTR)) if signals::are_restarted() => Ok(()),
            waited => waited.map(drop),
        }
    }

    /// Removes and returns the events of an object that is being destroyed.
    pub(crate) fn remove(&self, is_of: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut events = self.lock();
        let (removed, kept): (Vec<T>, Vec<T>) = events.drain(..).partition(is_of);
        *events = kept.into();
        if !removed.is_empty() && events.is_empty() {
            self.clear();
        }
        removed
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Adds an event to the queue if the addresses have changed. If `is_awaited` is set, a change that was reverted
    /// counts too, because a program in blocking mode may already have found the descriptor readable.
    fn check_changes(&self, is_awaited: bool) {
        let Some(watch) = &self.watch else { return };
        if !watch.changes.take() {
            return;
        }
        addresses::forget();
        let now = addresses::all();
        let mut reported = unpoisoned(watch.reported.lock());
        if is_awaited || *reported != now {
            *reported = now;
            self.put((watch.event)());
        }
    }

    /// Makes the descriptor unreadable. The caller must hold the lock.
    fn clear(&self) {
        let _ = rustix::io::read(&self.eventfd, &mut [0; size_of::<u64>()]);
    }

    /// Whether the program has set `O_NONBLOCK`.
    pub(crate) fn is_nonblocking(&self) -> Result<bool, Errno> {
        if cfg!(miri) {
            return Ok(true);
        }
        // SAFETY: the call takes only numbers.
        let flags = unsafe { libc::fcntl(self.as_raw_fd(), libc::F_GETFL) };
        if flags < 0 { Err(Errno::last()) } else { Ok(flags & libc::O_NONBLOCK != 0) }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        unpoisoned(self.events.lock())
    }
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}

/// Waits until `descriptor` or `other` is readable or an optional time-out has passed. Returns whether `descriptor` is
/// readable.
fn poll(descriptor: BorrowedFd<'_>, other: Option<BorrowedFd<'_>>, time: Option<&Timespec>) -> Result<bool, Errno> {
    let mut poll = [descriptor, other.unwrap_or(descriptor)].map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN));
    let count = if other.is_some() { 2 } else { 1 };
    rustix::event::poll(&mut poll[..count], time).map_err(errno)?;
    let found = poll[0].revents();
    if found.intersects(PollFlags::NVAL | PollFlags::ERR) {
        // The program has closed the descriptor.
        return Err(Errno(libc::EBADF));
    }
    Ok(found.contains(PollFlags::IN))
}

#[cfg(test)]
mod tests {
    use std::os::fd::FromRawFd;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    fn is_readable<T>(event_fd_queue: &EventFdQueue<T>) -> bool {
        poll(event_fd_queue.as_fd(), None, Some(&NO_TIME)).expect("a descriptor")
    }

    fn take<T>(event_fd_queue: &EventFdQueue<T>) -> Result<T, Errno> {
        event_fd_queue.take(|event| event)
    }

    fn set_nonblocking<T>(event_fd_queue: &EventFdQueue<T>) {
        // SAFETY: the call takes only numbers.
        unsafe {
            let flags = libc::fcntl(event_fd_queue.as_raw_fd(), libc::F_GETFL);
            assert_eq!(libc::fcntl(event_fd_queue.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK), 0);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn events_keep_their_order_and_make_the_descriptor_readable() {
        let event_fd_queue = EventFdQueue::new().expect("a descriptor");
        // SAFETY: the call takes only numbers.
        let flags = unsafe { libc::fcntl(event_fd_queue.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        for round in 0..3 {
            assert!(!is_readable(&event_fd_queue));
            (0..4).for_each(|event| event_fd_queue.put(10 * round + event));
            for event in 0..4 {
                assert!(is_readable(&event_fd_queue));
                assert_eq!(take(&event_fd_queue), Ok(10 * round + event));
            }
        }
        assert!(!is_readable(&event_fd_queue));
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn empty_nonblocking_queue_fails_with_eagain() {
        let event_fd_queue = EventFdQueue::new().expect("a descriptor");
        set_nonblocking(&event_fd_queue);
        assert_eq!(take(&event_fd_queue), Err(Errno::AGAIN));
        event_fd_queue.put(1);
        assert_eq!((take(&event_fd_queue), take(&event_fd_queue)), (Ok(1), Err(Errno::AGAIN)));
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn each_event_wakes_one_thread() {
        const EACH: usize = 500;
        let event_fd_queue = EventFdQueue::new().expect("a descriptor");
        let mut seen: Vec<usize> = std::thread::scope(|scope| {
            let takers = [0, 1].map(|_| {
                scope.spawn(|| {
                    (0..EACH).map(|_| take(&event_fd_queue).expect("no signal interrupts the call")).collect::<Vec<_>>()
                })
            });
            (0..2 * EACH).for_each(|event| event_fd_queue.put(event));
            takers.into_iter().flat_map(|taker| taker.join().expect("a taker")).collect()
        });
        seen.sort_unstable();
        assert_eq!(seen, (0..2 * EACH).collect::<Vec<_>>());
        assert!(!is_readable(&event_fd_queue));
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn each_event_wakes_edge_triggered_waiters() {
        let event_fd_queue = EventFdQueue::new().expect("a descriptor");
        // SAFETY: the call takes only numbers, and returns a new descriptor that only this test owns.
        let epoll = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
        let edges = || {
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            // SAFETY: `event` has space for one event.
            unsafe { libc::epoll_wait(epoll.as_raw_fd(), &mut event, 1, 0) }
        };
        let mut registration = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
        // SAFETY: the event is alive.
        unsafe {
            libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, event_fd_queue.as_raw_fd(), &mut registration)
        };
        assert_eq!(edges(), 0);
        for event in 0..3 {
            event_fd_queue.put(event);
            assert_eq!((edges(), edges()), (1, 0), "event {event}");
        }
        assert_eq!(take(&event_fd_queue), Ok(0));
        event_fd_queue.put(3);
        assert_eq!((edges(), edges()), (1, 0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn events_can_be_removed() {
        let event_fd_queue = EventFdQueue::new().expect("a descriptor");
        set_nonblocking(&event_fd_queue);
        assert_eq!(event_fd_queue.remove(|_| true).len(), 0);
        (0..4).for_each(|event| event_fd_queue.put(event));
        assert_eq!(event_fd_queue.remove(|event| event % 2 == 0).len(), 2);
        assert!(is_readable(&event_fd_queue));
        assert_eq!(take(&event_fd_queue), Ok(1));
        assert_eq!(event_fd_queue.remove(|&event| event == 3).len(), 1);
        assert!(!is_readable(&event_fd_queue));
        assert_eq!(take(&event_fd_queue), Err(Errno::AGAIN));
    }

    /// As with the kernel's channels. A program that waits until a descriptor is readable or writable would spin.
    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn descriptor_is_never_writable() {
        for event_fd_queue in [EventFdQueue::new(), EventFdQueue::watching(|| 0)] {
            let event_fd_queue = event_fd_queue.expect("descriptors");
            let found = || {
                let asked = PollFlags::IN | PollFlags::OUT;
                let mut poll = [PollFd::from_borrowed_fd(event_fd_queue.as_fd(), asked)];
                rustix::event::poll(&mut poll, Some(&NO_TIME)).expect("a descriptor");
                poll[0].revents()
            };
            assert_eq!(found(), PollFlags::empty());
            event_fd_queue.put(1);
            assert_eq!(found(), PollFlags::IN);
            assert_eq!(take(&event_fd_queue), Ok(1));
            assert_eq!(found(), PollFlags::empty());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn signal_ends_the_wait() {
        extern "C" fn nothing(_: libc::c_int) {}
        let handler: extern "C" fn(libc::c_int) = nothing;
        // SAFETY: the handler does nothing, and the signal is not used otherwise.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as libc::sighandler_t;
            assert_eq!(libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()), 0);
        }
        let event_fd_queue = EventFdQueue::<u8>::new().expect("a descriptor");
        let is_over = AtomicBool::new(false);
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| {
                // SAFETY: `pthread_self` has no preconditions.
                sender.send(unsafe { libc::pthread_self() }).expect("the receiver exists");
                let taken = take(&event_fd_queue);
                is_over.store(true, Ordering::Release);
                taken
            });
            let thread = receiver.recv().expect("the thread ID");
            while !is_over.load(Ordering::Acquire) {
                // SAFETY: the thread has not been joined.
                unsafe { libc::pthread_kill(thread, libc::SIGUSR2) };
                std::thread::yield_now();
            }
            assert_eq!(taker.join().expect("a taker"), Err(Errno(libc::EINTR)));
        });
    }
}
