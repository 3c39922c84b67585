//! The `verbs` backend, which uses RDMA devices through the crate `sideway`.
//!
//! A worker has one `Verbs` for each device that its connections use. It has one completion queue, one shared receive
//! queue, and a queue pair for each link.
//!
//! # The completion queue does not overrun
//!
//! The queue has an entry for each receive and for each outstanding request. A request is posted only if an entry is
//! free; otherwise the connection posts it in a later turn. A link is refused if no entry is free for the request that
//! marks the end of its flush.
//!
//! # The end of a link
//!
//! The queue pair goes to the error state, which flushes its requests; a last request marks the end of the flush. The
//! queue pair is destroyed when that request has completed, the completion queue is empty, and the peer has
//! disconnected; earlier, the shared queue could lose the receive of a message that is arriving. Then the buffers return
//! to their pool. The wait for a peer that does not answer ends after [`LINGER`].
//! Buffers never return before the flush or the destruction of the queue pair. If a link ends and the driver fails to
//! destroy its queue pair, the buffers are leaked. If `Verbs` is dropped with live links, it destroys their queue pairs
//! and returns the buffers even if this fails; a chunk of the pool is still deregistered before it is unmapped.

//! # Measurements for the constants
//!
//! These figures were measured with softrnic, between two processes on two busy processors. Short times are the fastest
//! of many rounds.
//!
//! | question | figure | decision |
//! |---|---|---|
//! | segments of 4 or 8 KiB | streamed SENDs of 4 KiB: 46 Gb/s, of 8 KiB: 76 Gb/s; one-way latency 2.42 and 2.56 us | 4 KiB: an idle link leases five receives, which use 20 KiB; the peer READs longer messages |
//! | SEND, or WRITE with immediate data into a ring | one-way latency of 64 B: 2.23 and 2.20 us; of 4 KiB: 2.42 and 2.40 us | SEND: it needs no key, and memory use follows the traffic |
//! | a memory window for each rendezvous | time of SEND, READ and key revocation, with a window and without: 16 KiB: 1.58 and 1.21 us; 64 KiB: 3.49 and 3.11 us; 1 MiB: 86 and 85 us (one process) | one window for each rendezvous: it costs 0.4 us |
//! | 10,000 queue pairs | created in 2.7 s, 267 us each, with 64 concurrent connect requests; 58 MiB of memory at the client and 48 MiB at the server besides the receives: 6 and 5 KiB each | each connection has its own queue pair |
//! | a zero-length WRITE as a probe | acknowledged in 0.80 us, even if the peer's program does not poll; it needs no key. After SIGKILL of the peer the link ends in 1 ms (the connection manager reports it), after SIGSTOP in 8.9 s | probe the NIC |
//!
//! The backend's tests of windows, probes, refusals, flushes and wake-ups also pass on the kernel's soft-RoCE (Linux
//! 6.1).

mod device;
mod link;
mod links;
mod manager;
mod number_map;
mod receives;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::time::{ClockId, clock_gettime};
use sideway::error::VerbError;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{
    CompletionChannel, CompletionQueue, CompletionRecord, GenericCompletionQueue, PollCompletions,
};
use sideway::ibverbs::device::{DeviceInfo, TransportType};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::queue_pair::{QueuePair, QueuePairAttributeMask};
use sideway::rdmacm::{ConnectionInfo, EventChannel, Identifier};

#[cfg(test)]
pub(crate) use self::device::has_windows;
pub(crate) use self::device::{Sleeper, choose, device_at, devices, in_words, source_of};

use self::device::Device;
use self::link::{Held, State};
use self::links::Links;
use self::receives::Receives;
use super::{Abilities, Backend, Ended, Events, HEADER, IncomingId, LinkId, ListenerId, RegionPart, Remote, Request};
use crate::memory::{Buf, Domain, HEADROOM, Pool, RegionMemory};

/// Maximum number of outstanding requests of a link. 64 requests of 4 KiB correspond to the product of a bandwidth of
/// 400 Gb/s and a delay of 5 µs. Together with the request that marks the end of a flush, the queue has 64 entries,
/// because drivers round up to a power of two.
const SEND_QUEUE: u32 = 63;
/// Every `SIGNAL_EVERY`-th posted request is signaled.
const SIGNAL_EVERY: u32 = 16;
/// If fewer completion queue entries than this are free, every request is signaled. So unsignaled requests never reserve
/// all entries: these would be freed only by a later request, for which no entry would be left.
const FEW: usize = (SEND_QUEUE + SIGNAL_EVERY) as usize;
/// Maximum number of outstanding reads of a link.
const READS: u16 = 16;
/// Maximum number of keys of a link that are valid at a time, for messages that the peer READs and for granted regions.
/// The protocol limits the number of announced buffers.
const WINDOWS: usize = 64;
/// Time limit for the flush and for the peer when a link ends.
const LINGER: Duration = Duration::from_secs(1);
/// The default limit for inline data, in bytes. Only messages up to this length are sent immediately.
const INLINE: usize = 96;
/// Maximum number of completions that one poll takes.
const BATCH: u32 = 32;

/// The options of a worker that concern its device.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Name of the device; `None` selects the device by the route to the address, or the first one with an active port.
    pub(crate) device: Option<String>,
    /// Length of a segment without the header, in bytes.
    pub(crate) segment: u32,
    /// The number of receives that the shared queue holds.
    pub(crate) receives: u32,
    /// Maximum length of a message that is sent inline. A larger value makes every queue pair larger.
    pub(crate) inline: u32,
    /// Maximum number of bytes that the pool registers.
    pub(crate) memory: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { device: None, segment: 4096, receives: 32_768, inline: INLINE as u32, memory: 1 << 30 }
    }
}

/// The RDMA connections of one worker. The order of the fields is the order in which they are dropped: queue pairs,
/// then the shared queue with its buffers, then the rest.
#[derive(Debug)]
pub(crate) struct Verbs {
    links: Links,
    incoming: HashMap<u64, Incoming>,
    next_incoming: u64,
    /// What belongs to other devices.
    strays: Vec<(Arc<DeviceContext>, Stray)>,
    listeners: HashMap<u32, Arc<Identifier>>,
    /// Links that ended before their connection was established.
    ended: Vec<(LinkId, Ended)>,
    cq: GenericCompletionQueue,
    /// Completions that were polled while the worker prepared to sleep.
    stash: Vec<CompletionRecord>,
    channel: Arc<CompletionChannel>,
    manager: Arc<EventChannel>,
    epoll: OwnedFd,
    pool: Pool,
    segment: u32,
    /// Since when the events of the connection manager cannot be read, and the error if they are lost.
    failures: (Option<Instant>, Option<VerbError>),
    /// Time of the last check of descriptors, in nanoseconds; 0 if the next turn must check.
    looked: u64,
    /// Whether the completion queue will raise an event, or has raised one that was not taken.
    is_armed: bool,
    device: Device,
}

/// A connect request that the worker has not answered yet. Dropping it rejects the request.
#[derive(Debug)]
pub(crate) struct Incoming {
    identifier: Arc<Identifier>,
    info: ConnectionInfo,
    listener: ListenerId,
}

/// What belongs to another device than this one.
#[derive(Debug)]
pub(crate) enum Stray {
    /// A request to connect that has arrived on it.
    Request(Incoming),
    /// A local address from which it has a route to a peer.
    Source(IpAddr),
}

impl Verbs {
    /// Opens a device: the device that `options` names, otherwise the device with a route to `near`, otherwise the
    /// first device.
    ///
    /// # Errors
    ///
    /// RDMA is unavailable. The error text contains the reason for the log, such as no library, no device or too little
    /// locked memory.
    pub(crate) fn open(options: &Options, near: Option<SocketAddr>) -> io::Result<Self> {
        Self::on(choose(options.device.as_deref(), near)?, options)
    }

    /// Creates the queues of a worker on a device.
    pub(crate) fn on(device: Arc<DeviceContext>, options: &Options) -> io::Result<Self> {
        let device = Device::new(device, options)?;
        let segment = options.segment + HEADROOM as u32;
        let pool = Pool::registered(segment as usize, options.memory, device.domain()).map_err(io::Error::other)?;
        let channel = device.channel()?;
        let cq = device.completion_queue(&channel)?;
        let receives = Receives::new(device.receive_queue()?, device.receives);
        let manager =
            EventChannel::new().map_err(|error| io::Error::new(io::ErrorKind::NotFound, error.to_string()))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let room = cq.cqe().saturating_sub(device.receives) as usize;
        let verbs = Self {
            links: Links::new(receives, room),
            incoming: HashMap::new(),
            next_incoming: 0,
            strays: Vec::new(),
            listeners: HashMap::new(),
            ended: Vec::new(),
            cq,
            stash: Vec::new(),
            channel,
            manager,
            epoll,
            pool,
            segment,
            failures: (None, None),
            looked: 0,
            is_armed: false,
            device,
        };
        verbs.watch()?;
        Ok(verbs)
    }

    /// Adds both descriptors to the epoll descriptor on which the worker sleeps.
    fn watch(&self) -> io::Result<()> {
        let readable = epoll::EventFlags::IN;
        epoll::add(&self.epoll, self.channel.as_fd(), epoll::EventData::new_u64(0), readable)?;
        epoll::add(&self.epoll, self.manager_fd(), epoll::EventData::new_u64(1), readable)?;
        Ok(())
    }

    fn manager_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel keeps its descriptor open for its lifetime, which is longer than that of the result. When the
        // descriptor is closed, the kernel removes it from the epoll.
        unsafe { BorrowedFd::borrow_raw(self.manager.as_raw_fd()) }
    }

    /// Returns what a thread needs to sleep on the descriptor.
    pub(crate) fn sleeper(&self) -> Sleeper {
        Sleeper(Some(Arc::clone(&self.channel)))
    }

    /// The device's name, for reports.
    pub(crate) fn device_name(&self) -> String {
        self.device.context.name()
    }

    pub(crate) fn is_on(&self, device: &Arc<DeviceContext>) -> bool {
        Arc::ptr_eq(device, &self.device.context)
    }

    /// Whether something belongs to other devices.
    pub(crate) fn has_strays(&self) -> bool {
        !self.strays.is_empty()
    }

    /// Takes what belongs to other devices.
    pub(crate) fn take_strays(&mut self) -> Vec<(Arc<DeviceContext>, Stray)> {
        std::mem::take(&mut self.strays)
    }

    /// Returns the numbers of a link's two queue pairs: first that of this side, then that of the peer, which is 0 if
    /// the device does not report it. Returns `None` over iWARP.
    pub(crate) fn queue_pairs(&mut self, id: LinkId) -> Option<(u32, u32)> {
        if self.device.context.transport_type() == TransportType::IWarp {
            return None;
        }
        let link = self.links.get(id)?;
        let queried = link.queue_pair.as_ref()?.query(QueuePairAttributeMask::DestinationQueuePairNumber);
        Some((link.qp_number, queried.map_or(0, |(attribute, _)| attribute.dest_qp_num())))
    }

    /// Returns an error if a region belongs to another device.
    pub(crate) fn check_device_of(&self, region: &RegionMemory) -> io::Result<()> {
        if Arc::ptr_eq(region.region().protection_domain(), &self.device.pd) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "the region belongs to another device or worker"))
    }

    fn open_buffer(&mut self, link: LinkId, buffer: Buf, access: AccessFlags) -> Result<Remote, Buf> {
        if !self.pool.owns(&buffer) {
            return Err(buffer);
        }
        self.open_window(link, Held::Buf(buffer, access)).map_err(|held| match held {
            Held::Buf(buffer, _) => buffer,
            Held::Region { .. } => Buf::on_heap(0),
        })
    }

    fn open_window(&mut self, link: LinkId, held: Held) -> Result<Remote, Held> {
        let domain = self.device.has_windows.then(|| Arc::clone(&self.device.pd));
        let Links { list, room, .. } = &mut self.links;
        match list.get_mut(link.index as usize) {
            Some(Some(entry)) if entry.id == link && matches!(entry.state, State::Established) => {
                // The window must be bound before the next request.
                *room += entry.take_back();
                entry.open(held, domain.as_ref())
            }
            _ => Err(held),
        }
    }
}

impl Backend for Verbs {
    fn abilities(&self) -> Abilities {
        Abilities {
            segment: self.segment,
            receives: self.device.receives,
            reads: u16::from(self.device.reads),
            writes: true,
            announces: self.device.announces,
        }
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn listen(&mut self, listener: ListenerId, address: SocketAddr, backlog: u32) -> io::Result<SocketAddr> {
        self.bind(listener, address, backlog)
    }

    fn unlisten(&mut self, listener: ListenerId) {
        self.listeners.remove(&listener.0);
        self.incoming.retain(|_, incoming| incoming.listener != listener);
    }

    fn connect(&mut self, link: LinkId, address: SocketAddr, hello: &[u8]) -> io::Result<()> {
        self.resolve(link, address, hello)
    }

    fn accept(&mut self, incoming: IncomingId, link: LinkId, hello: &[u8]) {
        if let Err(error) = self.answer(incoming, link, hello) {
            self.ended.push((link, Ended::Failed(error)));
            self.links.quiet = 1;
        }
    }

    fn reject(&mut self, incoming: IncomingId, refusal: &[u8]) {
        if let Some(incoming) = self.incoming.remove(&incoming.0)
            && let Err(error) = incoming.identifier.reject(refusal)
        {
            rdma_mummy_sys::log!(debug, "{error}");
        }
    }

    fn disconnect(&mut self, link: LinkId) {
        self.close(link, Ended::Closed);
    }

    #[inline]
    fn post(&mut self, link: LinkId, requests: &mut VecDeque<Request>, spare: &mut Vec<Buf>) {
        if self.links.room == 0 {
            self.links.take_back_all();
        }
        let Links { list, room, .. } = &mut self.links;
        let slot = list.get_mut(link.index as usize).and_then(Option::as_mut);
        let Some(link) = slot.filter(|it| it.id == link) else { return };
        match link.state {
            State::Established => {}
            State::Draining { .. } => return link.refuse(requests, spare),
            State::Resolving(_) | State::Connecting => return,
        }
        *room += link.take_back();
        let before = link.entries();
        let posted = link.post(requests, *room, &self.pool, spare);
        // Requests that the driver rejected also occupy their entries until the link ends.
        *room -= link.entries() - before;
        if let Err(error) = posted {
            rdma_mummy_sys::log!(debug, "{error}");
            manager::drain(link, Ended::Failed(error), false);
            let index = link.id.index;
            self.links.unsettle(index);
        }
    }

    #[inline]
    fn send_now(&mut self, id: LinkId, header: &[u8; HEADER], payload: &[u8]) -> bool {
        let Links { list, room, .. } = &mut self.links;
        let Some(Some(link)) = list.get_mut(id.index as usize) else { return false };
        debug_assert_eq!(link.id, id);
        link.send_now(header, payload, room)
    }

    fn expose(&mut self, link: LinkId, buffer: Buf) -> Result<Remote, Buf> {
        self.open_buffer(link, buffer, AccessFlags::RemoteRead)
    }

    fn announce(&mut self, link: LinkId, buffer: Buf) -> Result<Remote, Buf> {
        if !self.device.announces {
            return Err(buffer);
        }
        self.open_buffer(link, buffer, AccessFlags::RemoteWrite)
    }

    fn domain(&self) -> Option<Domain> {
        Some(self.device.domain())
    }

    fn grant(&mut self, link: LinkId, part: RegionPart) -> io::Result<Remote> {
        let RegionPart { memory, offset, length, is_writable, closed } = part;
        self.check_device_of(&memory)?;
        let write = if is_writable { AccessFlags::RemoteWrite } else { AccessFlags::empty() };
        let access = AccessFlags::RemoteRead | write;
        let held = Held::Region { memory, offset, length, access, closed };
        self.open_window(link, held).map_err(|_| {
            let text = format!("the connection has ended, or the peer has {WINDOWS} keys already; revoke some");
            io::Error::new(io::ErrorKind::QuotaExceeded, text)
        })
    }

    fn post_receives(&mut self, buffers: &mut Vec<Buf>) {
        if let Err(error) = self.links.receives.post(buffers) {
            rdma_mummy_sys::log!(error, "receives were not posted: {error}");
        }
    }

    #[inline]
    fn poll(&mut self, budget: usize, events: &mut impl Events, spare: &mut Vec<Buf>) -> usize {
        self.turn_all(BATCH.min(budget as u32), events, spare)
    }

    fn arm(&mut self) -> io::Result<bool> {
        // A request for a notification causes at most one event.
        if self.is_armed && self.channel.try_get_cq_event().map_err(device::verb)?.is_some() {
            self.is_armed = false;
        }
        if !self.is_armed {
            self.cq.req_notify(false).map_err(device::verb)?;
            self.is_armed = true;
        }
        self.cq.poll_records(&mut self.stash).map_err(|error| io::Error::other(error.to_string()))?;
        // The next turn checks the descriptors.
        (self.links.quiet, self.looked) = (1, 0);
        Ok(self.stash.is_empty() && self.ended.is_empty() && !self.links.has_over())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn deadline(&self) -> Option<u64> {
        let deadlines = self.links.unsettled.iter().filter_map(|&index| {
            match &self.links.list.get(index as usize)?.as_ref()?.state {
                State::Draining { deadline, .. } => Some(*deadline),
                _ => None,
            }
        });
        deadlines.min()
    }
}

/// Returns the time of CLOCK_MONOTONIC in nanoseconds.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
