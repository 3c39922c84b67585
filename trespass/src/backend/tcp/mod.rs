//! The `tcp` backend: transports the same SENDs over a TCP connection, for hosts without RDMA.
//!
//! Each side first sends its handshake: the client a hello, the server a hello or a refusal. After the handshakes, both
//! sides send records ([`record`]). Credits ensure that a receive is posted for each SEND. A SEND without a credit is
//! stored in an extra segment, so that it uses no receive of another link; the worker then ends the sender's link. The
//! peer READs a long message, as over RDMA: its bytes go from the sender's buffer to the socket, and from the socket to
//! the receiver's buffer. The kernel's keepalive replaces probes: like the NIC, it works even if the peer's program
//! does not run.

mod incoming;
mod link;
mod record;
mod socket;

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use rustix::time::{ClockId, clock_gettime};

use self::incoming::{Listening, Pending};
use self::link::{Progress, Remains, STAGING, TcpLink};
use self::record::Record;
use super::{Abilities, Backend, Ended, Events, IncomingId, LinkId, ListenerId, Remote, Request};
use crate::memory::{Buf, Ending, HEADROOM, Pool, no_memory};

/// The payload of a segment, in bytes.
const SEGMENT: u32 = 16 << 10;
/// Maximum number of outstanding READs of a link.
const READS: u16 = 16;
/// Maximum number of posted receives.
const RECEIVES: u32 = 1 << 16;
/// The limit of the pool, in bytes.
const MEMORY: usize = 1 << 30;
/// Time limit for a peer's handshake, and for its disconnect, in nanoseconds.
const HANDSHAKE: u64 = 10_000_000_000;
const GOODBYE: u64 = 1_000_000_000;
/// Interval between two searches for silent peers, in nanoseconds.
const SEARCH: u64 = 1_000_000_000;
/// Maximum number of events taken from the kernel in one call.
const BATCH: usize = 64;

/// TCP connections of one worker.
#[derive(Debug)]
pub(crate) struct Tcp {
    epoll: OwnedFd,
    pool: Pool,
    listeners: Vec<Listening>,
    /// The sockets by the index of their link, and the sockets that have no link because the worker has not accepted
    /// them yet.
    links: Vec<Option<(LinkId, TcpLink)>>,
    pending: VecDeque<Pending>,
    next_incoming: u64,
    /// The posted receives.
    receives: VecDeque<Buf>,
    /// Links that have ended and SENDs that have completed since the last poll.
    ended: Vec<(LinkId, Ended)>,
    sent: Vec<(LinkId, u32)>,
    /// READs that completed at once, because their messages had already arrived; with their tokens.
    read: Vec<(LinkId, u32, Buf)>,
    probed: Vec<LinkId>,
    /// Links that lacked memory, for which the worker has some.
    resumed: Vec<LinkId>,
    staging: Buf,
    /// Number of links that are being established or ended. Each of them has a deadline.
    unsettled: u32,
    /// The time of the last search for silent peers.
    searched: u64,
    /// Whether a link may wait for memory: the next search tries again.
    has_stalled: bool,
    /// Whether the kernel may have more events than it has last returned.
    is_full: bool,
}

const HANGUP: epoll::EventFlags = epoll::EventFlags::RDHUP.union(epoll::EventFlags::HUP).union(epoll::EventFlags::ERR);

/// The kind of the source of an epoll event is in the upper 32 bits of the event's data. The lower 32 bits identify the
/// listener or the pending connection.
const OF_LISTENER: u64 = 1 << 32;
const OF_PENDING: u64 = 2 << 32;

impl Tcp {
    pub(crate) fn new() -> io::Result<Tcp> {
        Ok(Tcp {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            pool: Pool::on_heap(SEGMENT as usize + HEADROOM, MEMORY),
            listeners: Vec::new(),
            links: Vec::new(),
            pending: VecDeque::new(),
            next_incoming: 0,
            receives: VecDeque::new(),
            ended: Vec::new(),
            sent: Vec::new(),
            read: Vec::new(),
            probed: Vec::new(),
            resumed: Vec::new(),
            staging: Buf::try_on_heap(STAGING).ok_or_else(|| no_memory(STAGING))?,
            unsettled: 0,
            searched: 0,
            has_stalled: false,
            is_full: false,
        })
    }

    fn watch(&self, socket: impl AsFd, what: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        Ok(epoll::add(&self.epoll, socket, epoll::EventData::new_u64(what), flags)?)
    }

    fn place(&mut self, link: LinkId, value: TcpLink) {
        let index = link.index as usize;
        if self.links.len() <= index {
            self.links.resize_with(index + 1, || None);
        }
        self.links[index] = Some((link, value));
    }

    fn get(&mut self, link: LinkId) -> Option<&mut TcpLink> {
        self.links.get_mut(link.index as usize)?.as_mut().filter(|(id, _)| *id == link).map(|(_, link)| link)
    }

    /// Reads and writes on a link. If the link ends, its buffers go to `spare`.
    fn drive(&mut self, index: usize, hangup: bool, events: &mut impl Events, spare: &mut Vec<Buf>) {
        let Some(Some((id, link))) = self.links.get_mut(index) else { return };
        let id = *id;
        let mut sent = 0;
        let segment = self.pool.segment_length();
        let intake = link::Intake { staging: &mut self.staging, receives: &mut self.receives, pool: &self.pool };
        let progress = link.drive(intake, hangup, &mut sent, spare, |progress| match progress {
            Progress::Established(facts, hello) => {
                events.established(id, facts, hello);
                true
            }
            Progress::Received(mut message) => {
                let length = message.len();
                message.extend_to(segment);
                events.received(id, message, length)
            }
            Progress::Read(token, message) => {
                events.read(id, token, message, true);
                true
            }
        });
        self.has_stalled |= link.is_stalled();
        if sent != 0 {
            events.sent(id, sent);
        }
        if link.take_probe() {
            events.probed(id);
        }
        if let Err(why) = progress {
            self.end(id, why, events, spare);
        }
    }

    /// Takes the numbers of SENDs that have completed since the last poll, which then does not report them.
    pub(crate) fn take_sent(&mut self) -> impl Iterator<Item = (LinkId, u32)> {
        self.sent.drain(..)
    }

    /// Ends a link: returns its buffers, then reports the end to the worker.
    fn end(&mut self, id: LinkId, why: Ended, events: &mut impl Events, spare: &mut Vec<Buf>) {
        let link = self.links.get_mut(id.index as usize);
        if let Some((_, link)) = link.and_then(|link| link.take_if(|(of, _)| *of == id)) {
            let Remains { spare: unused, receive, reads } = link.into_remains();
            spare.extend(unused);
            self.receives.extend(receive);
            for (token, into) in reads {
                events.read(id, token, into, false);
            }
        }
        events.ended(id, why);
    }

    /// Ends established links whose peers acknowledge nothing.
    fn search_silent(&mut self, events: &mut impl Events, spare: &mut Vec<Buf>) {
        let now = now();
        if now < self.searched + SEARCH {
            return;
        }
        self.searched = now;
        let stalled = self.links.iter().flatten().filter(|(_, link)| link.is_stalled()).map(|(id, _)| *id);
        self.resumed.extend(stalled);
        self.has_stalled = !self.resumed.is_empty();
        for index in 0..self.links.len() {
            if let Some((id, link)) = &mut self.links[index]
                && link.is_silent()
            {
                let (id, why) = (*id, link.timed_out());
                self.end(id, why, events, spare);
            }
        }
    }

    /// Whether clients have not sent their hello, or a listener waits for descriptors. Requests that the worker holds have no
    /// deadline: as long as they wait, no turn may look at all links.
    fn has_deadlines(&self) -> bool {
        self.pending.iter().any(|pending| pending.link.deadline != u64::MAX)
            || self.listeners.iter().any(|listening| listening.paused.is_some())
    }

    /// Ends links whose deadline has passed.
    fn look_at_deadlines(&mut self, events: &mut impl Events, spare: &mut Vec<Buf>) {
        let now = now();
        self.pending.retain(|pending| pending.link.deadline > now);
        for at in 0..self.listeners.len() {
            if self.listeners[at].paused.take_if(|until| *until <= now).is_some() {
                self.watch_listener(at);
            }
        }
        self.unsettled = 0;
        for index in 0..self.links.len() {
            let Some((id, link)) = &self.links[index] else { continue };
            let (id, deadline) = (*id, link.deadline);
            if deadline <= now {
                let why = link.timed_out();
                self.end(id, why, events, spare);
            } else {
                self.unsettled += u32::from(deadline != u64::MAX);
            }
        }
    }
}

impl Backend for Tcp {
    fn abilities(&self) -> Abilities {
        Abilities {
            segment: SEGMENT + HEADROOM as u32,
            receives: RECEIVES,
            reads: READS,
            writes: false,
            announces: false,
        }
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn listen(&mut self, listener: ListenerId, address: SocketAddr, backlog: u32) -> io::Result<SocketAddr> {
        let socket = socket::listen(address, backlog)?;
        let flags = epoll::EventFlags::IN;
        epoll::add(&self.epoll, &socket, epoll::EventData::new_u64(OF_LISTENER | u64::from(listener.0)), flags)?;
        let address = socket.local_addr()?;
        self.listeners.push(Listening { id: listener, socket, is_held: false, paused: None, refused_iwarp: false });
        Ok(address)
    }

    fn unlisten(&mut self, listener: ListenerId) {
        self.listeners.retain(|listening| listening.id != listener);
        self.pending.retain(|pending| pending.listener != listener);
    }

    fn hold(&mut self, listener: ListenerId, holds: bool) {
        if let Some(at) = self.listeners.iter().position(|listening| listening.id == listener)
            && self.listeners[at].is_held != holds
        {
            self.listeners[at].is_held = holds;
            self.watch_listener(at);
        }
    }

    fn connect(&mut self, link: LinkId, address: SocketAddr, hello: &[u8]) -> io::Result<()> {
        let socket = socket::connect(address)?;
        self.watch(&socket, u64::from(link.index))?;
        self.place(link, TcpLink::connecting(socket, hello, now() + HANDSHAKE));
        self.unsettled += 1;
        Ok(())
    }

    fn accept(&mut self, incoming: IncomingId, link: LinkId, hello: &[u8]) {
        let at = self.pending.iter().position(|pending| pending.id == incoming);
        let Some(Pending { link: mut value, .. }) = at.and_then(|at| self.pending.remove(at)) else {
            return self.ended.push((link, Ended::PeerClosed));
        };
        value.answer(hello);
        value.deadline = now() + HANDSHAKE;
        self.unsettled += 1;
        let data = epoll::EventData::new_u64(u64::from(link.index));
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        // Modifying the watched events makes epoll report pending events again.
        match epoll::modify(&self.epoll, &value.socket, data, flags) {
            Ok(()) => self.place(link, value),
            Err(error) => self.ended.push((link, Ended::Failed(error.into()))),
        }
    }

    fn reject(&mut self, incoming: IncomingId, refusal: &[u8]) {
        if let Some(at) = self.pending.iter().position(|pending| pending.id == incoming)
            && let Some(Pending { link, .. }) = self.pending.remove(at)
        {
            link.refuse(refusal);
        }
    }

    fn disconnect(&mut self, link: LinkId) {
        let deadline = now() + GOODBYE;
        let Some(value) = self.get(link) else { return };
        if value.is_established() {
            value.end(deadline);
            self.unsettled += 1;
        } else {
            // The link has neither sent nor received anything.
            self.links[link.index as usize] = None;
            self.ended.push((link, Ended::Closed));
        }
    }

    #[inline]
    fn post(&mut self, link: LinkId, requests: &mut VecDeque<Request>, spare: &mut Vec<Buf>) {
        let Some(value) = self.get(link) else { return };
        if !value.is_established() {
            return;
        }
        let mut sent = 0;
        let (mut read, mut failed) = (Vec::new(), None);
        for request in requests.drain(..) {
            match request {
                Request::Send(message) => value.push(Record::send(message)),
                Request::Read { token, into, from } => match value.read(from, token, into) {
                    Ok(message) => read.extend(message.map(|message| (link, token, message))),
                    Err(why) => failed = Some(why),
                },
                Request::Conceal(remote) => match value.conceal(remote) {
                    Ok(message) => spare.extend(message),
                    Err(why) => failed = Some(why),
                },
                Request::Probe => value.probe(),
                // These requests are never made, because TCP has no regions and no announced buffers.
                Request::Revoke(_) | Request::Bind | Request::Write { .. } | Request::Land { .. } => {}
                Request::Transfer(transfer) => transfer.end(Ending::Lost),
            }
        }
        let resumed = value.can_resume().then_some(link);
        value.push_exposed();
        // Ignored here: the next read returns the same error, and the link then reports it.
        _ = value.write(&mut sent, spare);
        let probed = value.take_probe();
        if sent != 0 {
            self.sent.push((link, sent));
        }
        if probed {
            self.probed.push(link);
        }
        self.read.append(&mut read);
        self.resumed.extend(resumed);
        self.ended.extend(failed.map(|why| (link, why)));
    }

    fn expose(&mut self, link: LinkId, buffer: Buf) -> Result<Remote, Buf> {
        match self.get(link) {
            Some(link) => Ok(link.expose(buffer)),
            None => Err(buffer),
        }
    }

    fn post_receives(&mut self, buffers: &mut Vec<Buf>) {
        self.receives.extend(buffers.drain(..));
    }

    fn poll(&mut self, budget: usize, events: &mut impl Events, spare: &mut Vec<Buf>) -> usize {
        let mut count = self.ended.len() + self.sent.len() + self.read.len() + self.resumed.len();
        for (link, token, message) in self.read.drain(..) {
            events.read(link, token, message, true);
        }
        for (link, why) in mem::take(&mut self.ended) {
            self.end(link, why, events, spare);
        }
        for (link, sent) in self.sent.drain(..) {
            events.sent(link, sent);
        }
        for link in self.probed.drain(..) {
            events.probed(link);
        }
        for link in mem::take(&mut self.resumed) {
            if self.get(link).is_some() {
                // No event reports the bytes and the end that have arrived meanwhile.
                self.drive(link.index as usize, true, events, spare);
            }
        }
        let mut ready = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; BATCH];
        let most = budget.clamp(1, BATCH);
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = match epoll::wait(&self.epoll, &mut ready[..most], Some(&zero)) {
            Ok(number) => &ready[..number],
            Err(_) => &[],
        };
        self.is_full = ready.len() == most;
        for event in ready {
            let what = event.data.u64();
            match what >> 32 {
                1 => self.accept_all(what as u32),
                2 => self.greet(what & 0xffff_ffff, events),
                _ => self.drive(what as usize, { event.flags }.intersects(HANGUP), events, spare),
            }
        }
        if self.unsettled != 0 || self.has_deadlines() {
            self.look_at_deadlines(events, spare);
        }
        self.search_silent(events, spare);
        count += ready.len();
        count
    }

    fn arm(&mut self) -> io::Result<bool> {
        let is_quiet = !self.is_full && self.ended.is_empty() && self.sent.is_empty() && self.read.is_empty();
        Ok(is_quiet && self.probed.is_empty() && self.resumed.is_empty())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn deadline(&self) -> Option<u64> {
        let links = self.links.iter().flatten().map(|(_, link)| link.deadline);
        let pending = self.pending.iter().map(|pending| pending.link.deadline);
        let paused = self.listeners.iter().filter_map(|listening| listening.paused);
        let search = self.has_stalled.then_some(self.searched + SEARCH);
        if self.unsettled == 0 && !self.has_deadlines() {
            return search;
        }
        let links = links.chain(search);
        links.chain(pending).chain(paused).filter(|&deadline| deadline != u64::MAX).min()
    }
}

/// Returns the time of CLOCK_MONOTONIC in nanoseconds.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Whether an error of a socket means only that the operation must be tried again later.
fn is_again(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Returns an error if an attempt to connect has failed.
fn connect_error(socket: &TcpStream) -> io::Result<()> {
    match socket.take_error()? {
        Some(error) => Err(error),
        None => Ok(()),
    }
}
