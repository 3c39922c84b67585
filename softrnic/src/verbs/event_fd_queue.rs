//! Events behind a descriptor: readable while there are any, as completion channels and asynchronous events have it. The latter
//! are also told of changes of the host's addresses.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::sys::addresses::{self, Address};
use crate::sys::changes::Changes;
use crate::sys::errno::Errno;
use crate::sys::{signals, unpoisoned};

/// A queue with an eventfd, which is written for each event that is put (so that edge-triggered watchers see it) and read when the
/// queue becomes empty.
///
/// The system calls are made without libc: there, these are cancellation points, and `pthread_cancel` cannot unwind a thread through
/// functions of Rust, nor must it with a lock held.
#[derive(Debug)]
pub(crate) struct EventFdQueue<T> {
    events: Mutex<VecDeque<T>>,
    descriptor: OwnedFd,
    watch: Option<Watch<T>>,
}

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// What besides is an event, of which the host tells.
#[derive(Debug)]
struct Watch<T> {
    /// Readable while the event_fd_queue's own descriptor is, or there are changes: what programs have.
    both: OwnedFd,
    changes: Changes,
    /// The addresses of which programs know.
    known: Mutex<Vec<Address>>,
    event: fn() -> T,
}

impl<T> EventFdQueue<T> {
    /// An empty one, whose descriptor blocks until the program sets it otherwise, as those of the kernel do.
    ///
    /// # Errors
    ///
    /// Those of `eventfd(2)`: `EMFILE`, `ENFILE`, `ENODEV`, `ENOMEM`.
    pub(crate) fn new() -> Result<Self, Errno> {
        let flags = if cfg!(miri) { libc::EFD_CLOEXEC | libc::EFD_NONBLOCK } else { libc::EFD_CLOEXEC };
        // SAFETY: takes plain numbers.
        let descriptor = unsafe { libc::eventfd(0, flags) };
        if descriptor < 0 {
            return Err(Errno::last());
        }
        // SAFETY: just made, and nobody else's.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Self { events: Mutex::new(VecDeque::new()), descriptor, watch: None })
    }

    /// One that also has an event when addresses of the host have changed, where the kernel tells of that.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub(crate) fn watching(event: fn() -> T) -> Result<Self, Errno> {
        let mut event_fd_queue = Self::new()?;
        if let Some(changes) = Changes::new() {
            let both = either(&[event_fd_queue.descriptor.as_raw_fd(), changes.as_raw_fd()])?;
            event_fd_queue.watch = Some(Watch { both, changes, known: Mutex::new(addresses::all()), event });
        }
        Ok(event_fd_queue)
    }

    /// What programs wait on.
    pub(crate) fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_ref().map_or(self.descriptor.as_fd(), |watch| watch.both.as_fd())
    }

    /// Puts an event. Never waits.
    pub(crate) fn put(&self, event: T) {
        let mut events = self.lock();
        events.push_back(event);
        // It would wait only where the sum came to 2^64 - 1.
        let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
    }

    /// Takes the oldest; where there is none, waits, or fails with `EAGAIN` where the program has set `O_NONBLOCK` on the descriptor.
    /// A signal ends it with `EINTR`, unless its handler has system calls restarted (`SA_RESTART`), as it does a `read(2)`.
    ///
    /// `seen` is called with the event while [`remove`](Self::remove) waits, so that an object that goes either finds its event here,
    /// or that it was taken.
    pub(crate) fn take<R>(&self, seen: impl FnOnce(T) -> R) -> Result<R, Errno> {
        // A program that blocks may have been told that there is something.
        let is_nonblocking = self.is_nonblocking()?;
        let mut is_awaited = !is_nonblocking;
        loop {
            self.look(is_awaited);
            is_awaited = false;
            {
                let mut events = self.lock();
                if let Some(event) = events.pop_front() {
                    if events.is_empty() {
                        self.clear();
                    }
                    return Ok(seen(event));
                }
            }
            if is_nonblocking {
                return Err(Errno::AGAIN);
            }
            // Others may take what it wakes for.
            match poll(self.as_fd(), None) {
                Err(Errno(libc::EINTR)) if signals::are_restarted() => {}
                waited => drop(waited?),
            }
        }
    }

    /// Takes back those of an object that goes; how many there were.
    pub(crate) fn remove(&self, mut is_of: impl FnMut(&T) -> bool) -> usize {
        let mut events = self.lock();
        let before = events.len();
        events.retain(|event| !is_of(event));
        let removed = before - events.len();
        if removed > 0 && events.is_empty() {
            self.clear();
        }
        removed
    }

    /// Puts the event of what has changed; where it `is_awaited`, also of what the host has told of and was no change in the end.
    fn look(&self, is_awaited: bool) {
        let Some(watch) = &self.watch else { return };
        if !watch.changes.take() {
            return;
        }
        addresses::forget();
        let now = addresses::all();
        let mut known = unpoisoned(watch.known.lock());
        if is_awaited || *known != now {
            *known = now;
            self.put((watch.event)());
        }
    }

    /// Makes the descriptor unreadable, with the lock held. Never waits: the program may have read it itself.
    fn clear(&self) {
        // Miri has no poll(2).
        if cfg!(miri) || matches!(poll(self.descriptor.as_fd(), Some(&NO_TIME)), Ok(true)) {
            let _ = rustix::io::read(&self.descriptor, &mut [0; size_of::<u64>()]);
        }
    }

    fn is_nonblocking(&self) -> Result<bool, Errno> {
        if cfg!(miri) {
            return Ok(true);
        }
        // SAFETY: takes plain numbers.
        let flags = unsafe { libc::fcntl(self.as_raw_fd(), libc::F_GETFL) };
        if flags < 0 { Err(Errno::last()) } else { Ok(flags & libc::O_NONBLOCK != 0) }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        unpoisoned(self.events.lock())
    }
}

/// A descriptor that is readable while one of these is.
fn either(descriptors: &[RawFd]) -> Result<OwnedFd, Errno> {
    // SAFETY: takes plain numbers.
    let both = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if both < 0 {
        return Err(Errno::last());
    }
    // SAFETY: just made, and nobody else's.
    let both = unsafe { OwnedFd::from_raw_fd(both) };
    for &descriptor in descriptors {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: the event can be read.
        if unsafe { libc::epoll_ctl(both.as_raw_fd(), libc::EPOLL_CTL_ADD, descriptor, &raw mut event) } != 0 {
            return Err(Errno::last());
        }
    }
    Ok(both)
}

/// Waits for a descriptor to be readable, which it says, for so long, or without end.
fn poll(descriptor: BorrowedFd<'_>, time: Option<&Timespec>) -> Result<bool, Errno> {
    let mut poll = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    rustix::event::poll(&mut poll, time).map_err(|errno| Errno(errno.raw_os_error()))?;
    let found = poll[0].revents();
    if found.intersects(PollFlags::NVAL | PollFlags::ERR) {
        // The program has closed it.
        return Err(Errno(libc::EBADF));
    }
    Ok(found.contains(PollFlags::IN))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn is_readable<T>(event_fd_queue: &EventFdQueue<T>) -> bool {
        poll(event_fd_queue.as_fd(), Some(&NO_TIME)).expect("a descriptor")
    }

    fn take<T>(event_fd_queue: &EventFdQueue<T>) -> Result<T, Errno> {
        event_fd_queue.take(|event| event)
    }

    fn set_nonblocking<T>(event_fd_queue: &EventFdQueue<T>) {
        // SAFETY: takes plain numbers.
        unsafe {
            let flags = libc::fcntl(event_fd_queue.as_raw_fd(), libc::F_GETFL);
            assert_eq!(libc::fcntl(event_fd_queue.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK), 0);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn events_come_in_order_and_the_descriptor_says_whether_there_are_any() {
        let event_fd_queue = EventFdQueue::new().expect("a descriptor");
        // SAFETY: takes plain numbers.
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
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn an_empty_one_that_does_not_block_says_so() {
        let event_fd_queue = EventFdQueue::new().expect("a descriptor");
        set_nonblocking(&event_fd_queue);
        assert_eq!(take(&event_fd_queue), Err(Errno::AGAIN));
        event_fd_queue.put(1);
        assert_eq!((take(&event_fd_queue), take(&event_fd_queue)), (Ok(1), Err(Errno::AGAIN)));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn threads_wait_for_events_each_of_which_goes_to_one() {
        const EACH: usize = 500;
        let event_fd_queue = EventFdQueue::new().expect("a descriptor");
        let mut seen: Vec<usize> = std::thread::scope(|scope| {
            let takers = [0, 1].map(|_| {
                scope.spawn(|| (0..EACH).map(|_| take(&event_fd_queue).expect("no signal comes")).collect::<Vec<_>>())
            });
            (0..2 * EACH).for_each(|event| event_fd_queue.put(event));
            takers.into_iter().flat_map(|taker| taker.join().expect("a taker")).collect()
        });
        seen.sort_unstable();
        assert_eq!(seen, (0..2 * EACH).collect::<Vec<_>>());
        assert!(!is_readable(&event_fd_queue));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn each_event_wakes_who_watches_for_edges() {
        let event_fd_queue = EventFdQueue::new().expect("a descriptor");
        // SAFETY: takes plain numbers, and gives a descriptor that is nobody else's.
        let epoll = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
        let edges = || {
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            // SAFETY: room for one event.
            unsafe { libc::epoll_wait(epoll.as_raw_fd(), &mut event, 1, 0) }
        };
        let mut wanted = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
        // SAFETY: a live event.
        unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, event_fd_queue.as_raw_fd(), &mut wanted) };
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
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn events_can_be_taken_back() {
        let event_fd_queue = EventFdQueue::new().expect("a descriptor");
        set_nonblocking(&event_fd_queue);
        assert_eq!(event_fd_queue.remove(|_| true), 0);
        (0..4).for_each(|event| event_fd_queue.put(event));
        assert_eq!(event_fd_queue.remove(|event| event % 2 == 0), 2);
        assert!(is_readable(&event_fd_queue));
        assert_eq!(take(&event_fd_queue), Ok(1));
        assert_eq!(event_fd_queue.remove(|&event| event == 3), 1);
        assert!(!is_readable(&event_fd_queue));
        assert_eq!(take(&event_fd_queue), Err(Errno::AGAIN));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn a_program_that_reads_the_descriptor_itself_stops_nobody() {
        let event_fd_queue = EventFdQueue::new().expect("a descriptor");
        let read = || {
            let mut sum = 0_u64;
            // SAFETY: eight live bytes.
            unsafe { libc::read(event_fd_queue.as_raw_fd(), (&raw mut sum).cast(), size_of::<u64>()) };
            sum
        };
        event_fd_queue.put(1);
        event_fd_queue.put(2);
        assert_eq!(read(), 2);
        assert_eq!((take(&event_fd_queue), take(&event_fd_queue)), (Ok(1), Ok(2)));
        event_fd_queue.put(3);
        assert_eq!(read(), 1);
        assert_eq!(event_fd_queue.remove(|_| true), 1);
        event_fd_queue.put(4);
        assert!(is_readable(&event_fd_queue));
        assert_eq!(take(&event_fd_queue), Ok(4));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn a_signal_ends_the_wait() {
        extern "C" fn nothing(_: libc::c_int) {}
        let handler: extern "C" fn(libc::c_int) = nothing;
        // SAFETY: the handler does nothing, and the signal is in no other use.
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
                // SAFETY: of this thread.
                sender.send(unsafe { libc::pthread_self() }).expect("the other end is there");
                let taken = take(&event_fd_queue);
                is_over.store(true, Ordering::Release);
                taken
            });
            let thread = receiver.recv().expect("it is sent first");
            while !is_over.load(Ordering::Acquire) {
                // SAFETY: the thread has not been joined.
                unsafe { libc::pthread_kill(thread, libc::SIGUSR2) };
                std::thread::yield_now();
            }
            assert_eq!(taker.join().expect("a taker"), Err(Errno(libc::EINTR)));
        });
    }
}
