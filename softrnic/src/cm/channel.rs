//! `struct rdma_event_channel`. The descriptor of a channel is readable while events are queued.
//!
//! The sockets of the identifiers, and a timer for their time-outs, are in an epoll descriptor. `rdma_get_cm_event`
//! handles those that are ready. While no event is queued, the thread of softrnic does so too: a program
//! may wait until the descriptor is readable and then call `rdma_get_cm_event`, and this call must not block. If the
//! descriptor of the program were readable when a socket is, the call would block after a packet that causes no event.
//! While events are queued, the thread handles nothing, so the peers cannot fill the memory of a program that takes no
//! events.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::mem::{self, MaybeUninit};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_mummy_sys::rdma_event_channel;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use super::calls::system;
use super::events::Pending;
use super::{World, device, try_world, unknown, world};
use crate::sys::descriptor::Descriptor;
use crate::sys::errno::Errno;
use crate::sys::thread::{Next, Place, Reactor, Task};
use crate::verbs::event_fd_queue::EventFdQueue;
use crate::verbs::failure;
use crate::wire::transport::Fabric;

/// The epoll data of the timer. Other sources are numbered from one.
const TIMER: u64 = u64::MAX;
/// The maximum number of sources that one call of epoll returns.
const MAX_SOURCES: usize = 16;
/// The maximum number of calls of epoll that queue no event. If work remains after them, the thread does it.
const MAX_POLLS: usize = 256;
/// When the thread tries again to handle sources, if another thread holds the lock, or a connection has not been read.
const RETRY: Duration = Duration::from_micros(100);
/// The thread handles the sources of a channel once, and again after the channel has no queued events.
const ONCE: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);

/// An event channel.
pub(super) struct Channel {
    pub(super) c: *mut rdma_event_channel,
    /// The events, and the errors of the thread.
    pub(super) events: Arc<EventFdQueue<Result<Pending, Errno>>>,
    /// The epoll descriptor with the sockets and the timer.
    pub(super) sources: Arc<OwnedFd>,
    place: Place,
    /// The number of the channel in events of the thread.
    number: u64,
    /// Whether the thread waits for the sources.
    is_attended: Cell<bool>,
    timer: OwnedFd,
    /// The time at which the timer expires, if it is set.
    armed: Cell<Option<Instant>>,
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
    fn new(place: Place, number: u64) -> Result<Self, Errno> {
        let events = EventFdQueue::new()?;
        let sources = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).map_err(system)?;
        epoll::add(&sources, &timer, EventData::new_u64(TIMER), EventFlags::IN).map_err(system)?;
        let c = Box::into_raw(Box::new(rdma_event_channel { fd: events.as_raw_fd() }));
        let channel = Self {
            c,
            events: Arc::new(events),
            sources: Arc::new(sources),
            place,
            number,
            is_attended: Cell::new(true),
            timer,
            armed: Cell::new(None),
            deadlines: BTreeSet::new(),
        };
        place.watch(&*channel.sources, number, ONCE).map_err(system)?;
        Ok(channel)
    }

    /// Lets the thread wait for the sources if no event is queued.
    fn attend(&self) {
        if self.events.is_empty()
            && !self.is_attended.replace(true)
            && let Err(error) = self.place.rewatch(&*self.sources, self.number, ONCE)
        {
            rdma_mummy_sys::log!(error, "cannot wait for the peers of an event channel: epoll failed: {error}");
        }
    }

    pub(super) fn take(&self) -> Option<Result<Pending, Errno>> {
        let taken = self.events.try_take(|taken| taken);
        self.attend();
        taken
    }

    /// Removes and returns the events for which `such` returns true.
    pub(super) fn remove(&self, such: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        let removed = self.events.remove(|event| event.as_ref().is_ok_and(&such));
        self.attend();
        removed.into_iter().filter_map(Result::ok).collect()
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
            rdma_mummy_sys::log!(warn, "cannot set the timer of an event channel: {error}");
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // If a child has inherited the sources, the events do not end when this process closes them.
        self.place.unwatch(&*self.sources);
        // SAFETY: `c` is a box created with the channel, and is freed only here.
        drop(unsafe { Box::from_raw(self.c) });
    }
}

impl World {
    /// Creates a channel, and returns the address of its C struct.
    pub(super) fn make_channel(&mut self) -> Result<*mut rdma_event_channel, Errno> {
        self.next_source += 1;
        let channel = Channel::new(self.place()?, self.next_source)?;
        let c = channel.c;
        self.channels.insert(c.addr(), channel);
        Ok(c)
    }

    /// Returns the place in the thread. The first call takes it.
    pub(super) fn place(&mut self) -> Result<Place, Errno> {
        let place = match self.place {
            Some(place) => place,
            None => Reactor::of_process().add(|_| Ok(Box::new(Turns::default()))).map_err(system)?,
        };
        self.place = Some(place);
        Ok(place)
    }

    /// Handles the sources of the channel with this number in the thread. `rdma_get_cm_event` returns the error if this
    /// fails. Returns whether the thread has to do this again soon, although no source becomes ready.
    fn attend(&mut self, number: u64) -> bool {
        let mut channels = self.channels.iter();
        let Some((&channel, found)) = channels.find(|(_, channel)| channel.number == number) else { return false };
        found.is_attended.set(false);
        // A peer may keep a source ready all the time, so this is one turn, and other threads then get the lock.
        let polled = self.poll_sources(channel);
        let is_unread = mem::take(&mut self.is_unread);
        let Some(found) = self.channels.get(&channel) else { return false };
        if let Err(errno) = polled {
            found.events.put(Err(errno));
        }
        let is_early = is_unread && found.events.is_empty();
        if !is_early {
            found.attend();
        }
        is_early
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
        epoll::add(&*self.channel(channel)?.sources, &*socket, data, flags).map_err(system)?;
        self.sources.insert(number, source);
        Ok(Watched { socket, source: number, flags })
    }

    /// Replaces the epoll events for the socket of an identifier's connection.
    pub(super) fn watch_link_for(&mut self, id: usize, flags: EventFlags) -> Result<(), Errno> {
        let identifier = self.id(id)?;
        let (channel, Some(link)) = (identifier.channel, identifier.link.as_mut()) else { return Err(Errno::INVALID) };
        link.flags = flags;
        let (socket, source) = (Arc::clone(&link.socket), link.source);
        epoll::modify(&*self.channel(channel)?.sources, &*socket, EventData::new_u64(source), flags).map_err(system)
    }

    /// Watches the sockets of an identifier only while the port is up that their peers would reach. Sends the packets
    /// that have waited for the port.
    pub(super) fn follow_port(&mut self, id: usize) {
        let Ok(identifier) = self.id(id) else { return };
        let fabric = identifier.fabric;
        let link = identifier.link.iter().map(|link| (link, fabric));
        let listeners = identifier.listener.iter().map(|listener| (listener, Fabric::Host));
        let stream_listeners = identifier.stream_listener.iter().map(|listener| (listener, Fabric::Iwarp));
        let new = identifier.new_connections.iter().map(|one| (&one.watched, one.fabric()));
        let watched: Vec<_> = link.chain(listeners).chain(stream_listeners).chain(new).collect();
        let watched: Vec<_> = watched.into_iter().map(|(one, fabric)| (one.clone(), fabric)).collect();
        let (channel, unsent) = (identifier.channel, mem::take(&mut identifier.unsent));
        if let Ok(channel) = self.channel(channel) {
            for (one, fabric) in watched {
                // The end of a peer is reported once.
                let flags = if device::is_down(fabric) { EventFlags::ONESHOT } else { one.flags };
                let _ = epoll::modify(&*channel.sources, &*one.socket, EventData::new_u64(one.source), flags);
            }
        }
        for message in unsent {
            self.send(id, &message);
        }
    }

    /// Watches the sockets of all identifiers after a change of a port.
    fn follow_ports(&mut self) {
        let ids: Vec<usize> = self.ids.keys().copied().collect();
        ids.into_iter().for_each(|id| self.follow_port(id));
    }

    pub(super) fn unwatch(&mut self, channel: usize, watched: &Watched) {
        self.sources.remove(&watched.source);
        if let Ok(channel) = self.channel(channel) {
            // This cannot fail, because the socket was added before and is open.
            let _ = epoll::delete(&*channel.sources, &*watched.socket);
        }
    }

    /// Moves sockets to another channel. If this fails, no socket is moved.
    pub(super) fn move_watched(&mut self, (from, to): (usize, usize), watched: &[Watched]) -> Result<(), Errno> {
        let new = Arc::clone(&self.channel(to)?.sources);
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
                let _ = epoll::delete(&*channel.sources, &*one.socket);
            }
        }
        Ok(())
    }

    /// Queues an event in the channel of its owner.
    pub(super) fn put(&mut self, pending: Pending) {
        let Ok(channel) = self.id(pending.owner).map(|id| id.channel) else { return };
        if let Ok(channel) = self.channel(channel) {
            channel.events.put(Ok(pending));
        }
    }

    /// Sets or removes the deadline of an identifier.
    pub(super) fn set_deadline(&mut self, id: usize, deadline: Option<Instant>) {
        let Ok(identifier) = self.id(id) else { return };
        let before = mem::replace(&mut identifier.deadline, deadline);
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
            if !has_found || mem::take(&mut self.is_unread) || !self.channel(channel)?.events.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Handles each source that is ready once. Returns whether any source was ready.
    fn poll_sources(&mut self, channel: usize) -> Result<bool, Errno> {
        let mut buffer = [const { MaybeUninit::uninit() }; MAX_SOURCES];
        let no_time = Timespec { tv_sec: 0, tv_nsec: 0 };
        let epoll = Arc::clone(&self.channel(channel)?.sources);
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
        if self.channel(channel)?.events.is_empty() { first_error.map(|()| !ready.is_empty()) } else { Ok(true) }
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

/// Makes the identifiers notice that a port is up or down.
pub(crate) fn port_changed() {
    world().follow_ports();
}

/// What the thread does for the channels.
#[derive(Default)]
struct Turns {
    /// The channels with sources that are ready.
    ready: Vec<u64>,
}

impl Task for Turns {
    fn event(&mut self, id: u64) {
        self.ready.push(id);
    }

    fn turn(&mut self) -> Next {
        let retry = || Some(Instant::now() + RETRY);
        let due = try_world().map_or_else(retry, |mut world| world.attend_roce());
        let mut early = Vec::new();
        while let Some(&channel) = self.ready.last() {
            // A program may hold the lock for long, for example while it accepts many connections.
            let Some(mut world) = try_world() else { break };
            self.ready.pop();
            if world.attend(channel) {
                early.push(channel);
            }
        }
        self.ready.append(&mut early);
        let retry = if self.ready.is_empty() { None } else { retry() };
        Next::from(due.into_iter().chain(retry).min())
    }
}

/// `rdma_create_event_channel()`.
///
/// # Safety
///
/// This function has no requirements.
pub(super) unsafe extern "C" fn create_event_channel() -> *mut rdma_event_channel {
    if crate::verbs::device::all().next().is_none() {
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
