//! The sockets of a transport. The thread of softrnic serves them, unless a thread of the program does: one that polls
//! empty completion queues, or that waits for an event.

use std::cell::Cell;
use std::cmp;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::descriptor::Descriptor;
use super::thread::Place;

/// A program counts as polling after this number of empty polls between two events. A program that waits for events
/// also polls until its queue is empty, but only a few times.
pub(crate) const POLLING_AFTER: u32 = 16;
/// A thread yields after this number of consecutive empty polls. If more threads poll than there are cores, the process
/// that must send the next packet may need this core.
const YIELD_AFTER: u32 = 64;
/// The interval at which the thread checks whether the program still serves the sockets.
pub(crate) const TICK: Duration = Duration::from_millis(1);
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

/// The sockets of a transport, in the place of the transport in the thread.
#[derive(Debug)]
pub(crate) struct SocketSet {
    pub(crate) place: Place,
    /// The epoll descriptor with the sockets. The thread waits for it only while no program serves the sockets.
    pub(crate) all: Descriptor,
}

impl SocketSet {
    pub(crate) fn new(place: Place) -> Result<Self, Errno> {
        let all = Descriptor::open(|| epoll::create(epoll::CreateFlags::CLOEXEC))?;
        place.watch(&all, SOCKETS, epoll::EventFlags::IN)?;
        Ok(Self { place, all })
    }

    pub(crate) fn add(&self, socket: &Descriptor, id: u64, flags: epoll::EventFlags) -> Result<(), Errno> {
        epoll::add(&self.all, socket, epoll::EventData::new_u64(id), flags)
    }

    pub(crate) fn remove(&self, socket: &Descriptor) {
        _ = epoll::delete(&self.all, socket);
    }

    /// Sets whether the thread waits for the sockets.
    pub(crate) fn set_watching(&self, is_watching: bool) {
        let flags = if is_watching { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        if let Err(error) = self.place.rewatch(&self.all, SOCKETS, flags) {
            rdma_mummy_sys::log!(error, "cannot wait for peers: epoll failed: {error}");
        }
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
