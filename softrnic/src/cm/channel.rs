//! `struct rdma_event_channel`. A channel is an epoll descriptor to which the sockets of its identifiers are added.
//!
//! An eventfd and a timer are also added to the epoll descriptor. The eventfd is readable while events are queued, and
//! the timer is for time-outs. Time-outs take effect only in `rdma_get_cm_event`, because the connection manager has no
//! thread. When a time-out is due, the timer makes the descriptor readable. The descriptor may be readable once without
//! an event.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rdma_mummy_sys::rdma_event_channel;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use super::calls::system;
use super::events::Pending;
use super::{World, unknown, world};
use crate::sys::descriptor::Descriptor;
use crate::sys::errno::Errno;
use crate::verbs::failure;

/// The epoll data of the eventfd and of the timer. Other sources are numbered from one.
const WAKE: u64 = 0;
const TIMER: u64 = u64::MAX;
/// The maximum number of sources that one call of epoll returns.
const MAX_SOURCES: usize = 16;
/// The maximum number of calls of epoll that queue no event. If work remains after them, the descriptor stays readable.
const MAX_POLLS: usize = 256;

/// An event channel.
pub(super) struct Channel {
    pub(super) c: *mut rdma_event_channel,
    pub(super) epoll: Arc<OwnedFd>,
    wake: OwnedFd,
    /// Whether the eventfd `wake` is readable.
    is_woken: Cell<bool>,
    timer: OwnedFd,
    /// The time at which the timer expires, if it is set.
    armed: Cell<Option<Instant>>,
    queue: VecDeque<Pending>,
    /// The deadlines of identifiers.
    deadlines: BTreeSet<(Instant, usize)>,
}

// SAFETY: the C struct is not bound to a thread.
unsafe impl Send for Channel {}

/// The kinds of sockets that a channel can contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The listening socket of the identifier with this address.
    Listener(usize),
    /// The listening TCP socket of the identifier.
    StreamListener(usize),
    /// A connection to a listening identifier that has not sent its first packet.
    NewConnection(usize),
    /// The connection of an identifier.
    Link(usize),
}

/// A socket in a channel.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub(super) socket: Arc<Descriptor>,
    source: u64,
    flags: EventFlags,
}

impl Watched {
    pub(super) fn source(&self) -> u64 {
        self.source
    }
}

impl Channel {
    fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(system)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).map_err(system)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN).map_err(system)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN).map_err(system)?;
        let c = Box::into_raw(Box::new(rdma_event_channel { fd: epoll.as_raw_fd() }));
        Ok(Self {
            c,
            epoll: Arc::new(epoll),
            wake,
            is_woken: Cell::new(false),
            timer,
            armed: Cell::new(None),
            queue: VecDeque::new(),
            deadlines: BTreeSet::new(),
        })
    }

    /// Makes the descriptor readable.
    pub(super) fn wake(&self) {
        if !self.is_woken.replace(true) {
            // The counter of the eventfd is zero, so the write cannot fail.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }

    fn put(&mut self, pending: Pending) {
        if self.queue.is_empty() {
            self.wake();
        }
        self.queue.push_back(pending);
    }

    fn quiet_if_empty(&self) {
        if self.queue.is_empty() && self.is_woken.replace(false) {
            let _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
        }
    }

    pub(super) fn take(&mut self) -> Option<Pending> {
        let pending = self.queue.pop_front();
        self.quiet_if_empty();
        pending
    }

    /// Removes and returns the events for which `such` returns true.
    pub(super) fn remove(&mut self, such: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        let (removed, stay): (Vec<_>, Vec<_>) = self.queue.drain(..).partition(such);
        self.queue = stay.into();
        self.quiet_if_empty();
        removed
    }

    /// Sets the timer to the first deadline. If the timer is set for an earlier time, it is not changed, because
    /// [`World::expire`] calls this function again.
    fn arm(&self) {
        let first = self.deadlines.first().map(|(when, _)| *when);
        let armed = self.armed.get();
        if first == armed || first.is_some_and(|first| armed.is_some_and(|armed| armed <= first)) {
            return;
        }
        self.armed.set(first);
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = match first {
            None => none,
            Some(when) => {
                let left = when.saturating_duration_since(Instant::now());
                // A time of zero would disarm the timer.
                let tv_nsec = if left.is_zero() { 1 } else { left.subsec_nanos().into() };
                Timespec { tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec }
            }
        };
        let spec = Itimerspec { it_interval: none, it_value };
        if let Err(error) = rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec) {
            log::warn!("cannot set the timer of an event channel: {error}");
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: `c` is a box created with the channel, and is freed only here.
        drop(unsafe { Box::from_raw(self.c) });
    }
}

impl World {
    /// Creates a channel, and returns the address of its C struct.
    pub(super) fn make_channel(&mut self) -> Result<*mut rdma_event_channel, Errno> {
        let channel = Channel::new()?;
        let c = channel.c;
        self.channels.insert(c.addr(), channel);
        Ok(c)
    }

    fn channel(&mut self, channel: usize) -> Result<&mut Channel, Errno> {
        self.channels.get_mut(&channel).ok_or_else(|| unknown(Errno(libc::EBADF)))
    }

    /// Adds a socket to the channel of an identifier.
    pub(super) fn watch(&mut self, id: usize, socket: Arc<Descriptor>, source: Source) -> Result<Watched, Errno> {
        self.watch_for(id, socket, source, EventFlags::IN)
    }

    /// Adds a socket to the channel of an identifier, with the epoll events to wait for.
    pub(super) fn watch_for(
        &mut self,
        id: usize,
        socket: Arc<Descriptor>,
        source: Source,
        flags: EventFlags,
    ) -> Result<Watched, Errno> {
        let channel = self.id(id)?.channel;
        self.next_source += 1;
        let number = self.next_source;
        let data = EventData::new_u64(number);
        epoll::add(&*self.channel(channel)?.epoll, &*socket, data, flags).map_err(system)?;
        self.sources.insert(number, source);
        Ok(Watched { socket, source: number, flags })
    }

    /// Replaces the epoll events for the socket of an identifier's connection.
    pub(super) fn watch_link_for(&mut self, id: usize, flags: EventFlags) -> Result<(), Errno> {
        let identifier = self.id(id)?;
        let (channel, Some(link)) = (identifier.channel, identifier.link.as_mut()) else { return Err(Errno::INVALID) };
        link.flags = flags;
        let (socket, source) = (Arc::clone(&link.socket), link.source);
        epoll::modify(&*self.channel(channel)?.epoll, &*socket, EventData::new_u64(source), flags).map_err(system)
    }

    pub(super) fn unwatch(&mut self, channel: usize, watched: &Watched) {
        self.sources.remove(&watched.source);
        if let Ok(channel) = self.channel(channel) {
            // This cannot fail, because the socket was added before and is open.
            let _ = epoll::delete(&*channel.epoll, &*watched.socket);
        }
    }

    /// Moves sockets to another channel. If this fails, no socket is moved.
    pub(super) fn move_watched(&mut self, (from, to): (usize, usize), watched: &[Watched]) -> Result<(), Errno> {
        let new = Arc::clone(&self.channel(to)?.epoll);
        for (place, one) in watched.iter().enumerate() {
            let data = EventData::new_u64(one.source);
            if let Err(errno) = epoll::add(&*new, &*one.socket, data, one.flags) {
                for added in &watched[..place] {
                    let _ = epoll::delete(&*new, &*added.socket);
                }
                return Err(system(errno));
            }
        }
        if let Ok(channel) = self.channel(from) {
            for one in watched {
                let _ = epoll::delete(&*channel.epoll, &*one.socket);
            }
        }
        Ok(())
    }

    /// Queues an event in the channel of its owner.
    pub(super) fn put(&mut self, pending: Pending) {
        let Ok(channel) = self.id(pending.owner).map(|id| id.channel) else { return };
        if let Ok(channel) = self.channel(channel) {
            channel.put(pending);
        }
    }

    /// Sets or removes the deadline of an identifier.
    pub(super) fn set_deadline(&mut self, id: usize, deadline: Option<Instant>) {
        let Ok(identifier) = self.id(id) else { return };
        let before = std::mem::replace(&mut identifier.deadline, deadline);
        let channel = identifier.channel;
        if before != deadline {
            self.move_deadline(id, (channel, before), (channel, deadline));
        }
    }

    pub(super) fn move_deadline(
        &mut self,
        id: usize,
        (from, before): (usize, Option<Instant>),
        (to, deadline): (usize, Option<Instant>),
    ) {
        if let (Some(before), Ok(channel)) = (before, self.channel(from)) {
            channel.deadlines.remove(&(before, id));
            channel.arm();
        }
        if let (Some(deadline), Ok(channel)) = (deadline, self.channel(to)) {
            channel.deadlines.insert((deadline, id));
            channel.arm();
        }
    }

    /// Handles the ready sockets of a channel, and queues the resulting events. This is repeated until an event is
    /// queued or no socket is ready. If no event is queued, all packets that have arrived so far were therefore
    /// handled.
    pub(super) fn gather(&mut self, channel: usize) -> Result<(), Errno> {
        for _ in 0..MAX_POLLS {
            let has_found = self.poll_sources(channel)?;
            if !has_found || !self.channel(channel)?.queue.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Handles each source that is ready once. Returns whether any source was ready.
    fn poll_sources(&mut self, channel: usize) -> Result<bool, Errno> {
        let mut buffer = [const { MaybeUninit::uninit() }; MAX_SOURCES];
        let no_time = Timespec { tv_sec: 0, tv_nsec: 0 };
        let epoll = Arc::clone(&self.channel(channel)?.epoll);
        let ready: Vec<u64> = match epoll::wait(&*epoll, &mut buffer[..], Some(&no_time)) {
            Ok((ready, _)) => ready.iter().map(|event| event.data.u64()).collect(),
            Err(rustix::io::Errno::INTR) => Vec::new(),
            Err(errno) => return Err(system(errno)),
        };
        let mut first_error = Ok(());
        // Connections are handled before listeners, because a peer may send a packet and then connect again.
        for &number in &ready {
            if let Some(Source::Link(id)) = self.sources.get(&number).copied() {
                self.handle_link(id);
            }
        }
        for &number in &ready {
            match self.sources.get(&number).copied() {
                Some(Source::Listener(id)) => first_error = first_error.and(self.accept_connection(id, false)),
                Some(Source::StreamListener(id)) => first_error = first_error.and(self.accept_connection(id, true)),
                Some(Source::NewConnection(id)) => self.handle_new_connection(id, number),
                Some(Source::Link(_)) | None => {}
            }
        }
        // Deadlines are checked last, so that packets that arrived in time are handled first.
        if ready.contains(&TIMER) {
            self.expire(channel);
        }
        // If other sources have queued events, the program receives them before the error.
        if self.channel(channel)?.queue.is_empty() { first_error.map(|()| !ready.is_empty()) } else { Ok(true) }
    }

    fn expire(&mut self, channel: usize) {
        let now = Instant::now();
        if let Ok(found) = self.channel(channel) {
            let _ = rustix::io::read(&found.timer, &mut [0_u8; 8]);
            found.armed.set(None);
        }
        while let Some(&(when, id)) = self.channel(channel).ok().and_then(|channel| channel.deadlines.first()) {
            if when > now {
                break;
            }
            self.set_deadline(id, None);
            self.handle_deadline(id, now);
        }
        if let Ok(channel) = self.channel(channel) {
            channel.arm();
        }
    }
}

/// Whether the descriptor is in blocking mode.
pub(super) fn blocks(descriptor: BorrowedFd<'_>) -> bool {
    // SAFETY: the call takes only numbers; the descriptor is open.
    let flags = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GETFL) };
    flags & libc::O_NONBLOCK == 0
}

/// Waits until a source is ready. Any signal with a handler ends the wait with `EINTR`, even if `SA_RESTART` is set.
/// Unlike libc's `epoll_wait`, this function is not a cancellation point, because a cancelled thread cannot be unwound
/// through Rust functions.
pub(super) fn wait(epoll: &OwnedFd) -> Result<(), Errno> {
    let mut poll = [rustix::event::PollFd::from_borrowed_fd(epoll.as_fd(), rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut poll, None).map(drop).map_err(system)
}

/// `rdma_create_event_channel()`.
///
/// # Safety
///
/// This function has no requirements.
pub(super) unsafe extern "C" fn create_event_channel() -> *mut rdma_event_channel {
    if crate::verbs::device::all().is_empty() {
        return failure::null(Errno(libc::ENODEV));
    }
    let made = world().make_channel();
    made.unwrap_or_else(failure::null)
}

/// `rdma_destroy_event_channel(channel)`.
///
/// # Safety
///
/// As in C: the channel has no identifiers, and is no longer used.
pub(super) unsafe extern "C" fn destroy_event_channel(channel: *mut rdma_event_channel) {
    let removed = world().channels.remove(&channel.addr());
    drop(removed);
}
