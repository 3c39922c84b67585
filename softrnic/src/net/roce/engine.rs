//! The RoCEv2 connections and datagrams of the process.
//!
//! The thread of softrnic waits for the sockets. While a program polls empty completion queues or waits for completion
//! events, the program serves them instead, see [`attendance`](crate::net::attendance).

mod timers;
mod turns;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, TryLockError, Weak};
use std::time::Instant;

use rdma_mummy_sys::program::Held;
use rustix::event::epoll;
use rustix::io::Errno;

use self::turns::Turns;
use super::counters::Counters;
use super::datagrams::{self, Datagrams};
use super::link::{Ends, Link};
use super::management::{self, Arrived, Inbox};
use super::packet::{PORT, Packet, Transport};
use super::run::Run;
use super::socket::arrival::{Arrival, Receiver};
use super::socket::batch::{Batch, Header, Route};
use super::socket::{OpenError, Owner, SendError, Sockets as Udp};
use super::window::Window;
use crate::net::attendance::Attendance;
use crate::sys::errno::Errno as SysErrno;
use crate::sys::socket_set::{Reason, SocketSet, yield_if_empty};
use crate::sys::thread::{Place, Reactor};
use crate::sys::unpoisoned;
use crate::wire::address::Gid;
use crate::wire::operation::Service;
use crate::wire::packet::{BLOCK, MULTICAST_NUMBER};
use crate::wire::transport::{Carrier, Deliver, Sockets};

/// The maximum number of times that the sockets are read at once.
const MAX_ROUNDS: usize = 8;
/// After this number of datagrams, the receive buffers may have been full.
const OVERFLOW: usize = 16;
/// The maximum number of batches that are kept for later packets.
const MAX_BATCHES: usize = 4;
/// The bits of a P_Key without the membership.
const PARTITION: u16 = 0x7fff;

#[derive(Debug)]
pub(crate) struct Engine {
    deliver: &'static dyn Deliver,
    thread: fn() -> &'static Reactor,
    udp: OnceLock<Udp>,
    sockets: OnceLock<SocketSet>,
    /// Held while `udp` and `sockets` are set.
    starting: Mutex<()>,
    links: RwLock<BTreeMap<u32, Arc<Link>>>,
    /// The windows of the hosts to which there are connections.
    windows: Mutex<BTreeMap<Gid, Weak<Mutex<Window>>>>,
    /// The counters of links that were removed, and of packets that belong to no link.
    counters: Mutex<Counters>,
    has_started: AtomicBool,
    /// Held while packets are delivered, so that their order is preserved.
    receiving: Mutex<Option<Receiving>>,
    batches: Mutex<Vec<Batch>>,
    /// The times at which links must be called.
    timers: Mutex<BinaryHeap<Reverse<(Instant, u32)>>>,
    /// The blocks of QP numbers that belong to this process.
    blocks: RwLock<BTreeSet<u32>>,
    /// The members of the multicast groups that the sockets have joined.
    groups: Mutex<BTreeMap<Gid, BTreeSet<u32>>>,
    attendance: Attendance,
    inbox: Inbox,
}

#[derive(Debug)]
struct Receiving {
    receiver: Receiver,
    /// The links whose packets have arrived.
    touched: Vec<Arc<Link>>,
    /// The number of datagrams since `overflows` was compared.
    unchecked: usize,
    /// How many datagrams the kernel had dropped then.
    overflows: u32,
}

impl Engine {
    pub(crate) const fn new(deliver: &'static dyn Deliver, thread: fn() -> &'static Reactor) -> Self {
        Self {
            deliver,
            thread,
            udp: OnceLock::new(),
            sockets: OnceLock::new(),
            starting: Mutex::new(()),
            links: RwLock::new(BTreeMap::new()),
            windows: Mutex::new(BTreeMap::new()),
            counters: Mutex::new(Counters::new()),
            has_started: AtomicBool::new(false),
            receiving: Mutex::new(None),
            batches: Mutex::new(Vec::new()),
            timers: Mutex::new(BinaryHeap::new()),
            blocks: RwLock::new(BTreeSet::new()),
            groups: Mutex::new(BTreeMap::new()),
            attendance: Attendance::new(),
            inbox: Inbox::new(),
        }
    }

    pub(super) fn deliver(&self) -> &'static dyn Deliver {
        self.deliver
    }

    /// Opens the sockets, and begins to serve them.
    ///
    /// # Errors
    ///
    /// The reason why there are no sockets. A later call tries again.
    pub(crate) fn start(&'static self) -> Result<&'static Udp, OpenError> {
        if let Some(udp) = self.udp.get().filter(|_| self.has_started.load(Ordering::Acquire)) {
            return Ok(udp);
        }
        let _starting = unpoisoned(self.starting.lock());
        let udp = match self.udp.get() {
            Some(udp) => udp,
            None => {
                let udp = Udp::open()?;
                self.udp.get_or_init(|| udp)
            }
        };
        self.serve_by_thread(udp).map_err(OpenError::thread)?;
        self.has_started.store(true, Ordering::Release);
        Ok(udp)
    }

    fn serve_by_thread(&'static self, udp: &Udp) -> Result<(), Errno> {
        let sockets = SocketSet::start(&self.sockets, (self.thread)(), |sockets| Box::new(Turns::new(self, sockets)))?;
        for (socket, id) in udp.descriptors().zip(1..) {
            match sockets.add(socket, id, epoll::EventFlags::IN) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Creates the connection of a QP. Packets of its peer are accepted from now on.
    ///
    /// # Errors
    ///
    /// The reason why there are no sockets.
    pub(crate) fn connect(&'static self, ends: Ends) -> Result<Arc<Link>, OpenError> {
        let udp = self.start()?;
        self.own(ends.number).map_err(OpenError::forwarding)?;
        let path = ends.path;
        let route = Route {
            source: path.source,
            destination: path.destination,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            flow_label: path.flow_label,
        };
        let route = if ends.service == Service::UnreliableConnection { route } else { route.with_ecn() };
        let link = Link::new(self, udp.header(&route), self.window(path.destination), ends);
        unpoisoned(self.links.write()).insert(ends.number, Arc::clone(&link));
        Ok(link)
    }

    /// Receives the packets for the QP `number`, also if they arrive at another process of the host.
    ///
    /// # Errors
    ///
    /// For example EMFILE. A later call tries again.
    pub(crate) fn own(&self, number: u32) -> Result<(), Errno> {
        if !self.claim(number / BLOCK)? {
            // Without other processes, all packets arrive here.
            rdma_mummy_sys::log!(debug, "cannot receive packets that arrive at other processes: the block is in use");
            unpoisoned(self.blocks.write()).insert(number / BLOCK);
        }
        Ok(())
    }

    /// Makes a block of QP numbers belong to this process. Returns `false` if it belongs to another one.
    pub(crate) fn claim(&self, block: u32) -> Result<bool, Errno> {
        let mut blocks = unpoisoned(self.blocks.write());
        if let Some(udp) = self.udp.get().filter(|_| !blocks.contains(&block)) {
            match udp.own(block) {
                Ok(()) => {}
                Err(Errno::ADDRINUSE) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        blocks.insert(block);
        Ok(true)
    }

    /// Whether a block of QP numbers belongs to this process.
    pub(crate) fn owns(&self, block: u32) -> bool {
        unpoisoned(self.blocks.read()).contains(&block)
    }

    /// Receives the requests for a listener that arrive at other processes of the host. These know its name.
    pub(crate) fn own_service(&self, name: &str) -> Result<(), Errno> {
        self.udp.get().map_or(Ok(()), |udp| udp.own_service(name)).inspect_err(|error| {
            rdma_mummy_sys::log!(error, "cannot receive connect requests that arrive at other processes: {error}");
        })
    }

    /// Ends the effect of [`own_service`](Self::own_service).
    pub(crate) fn disown_service(&self, name: &str) {
        if let Some(udp) = self.udp.get() {
            udp.disown_service(name);
        }
    }

    /// Passes a management datagram to another process. Returns `false` if there is no such process.
    pub(crate) fn pass_management(&self, owner: Owner<'_>, arrived: &Arrived) -> bool {
        let Some(udp) = self.udp.get() else { return false };
        let mut bytes = Vec::new();
        management::packet().write(&arrived.bytes, &mut bytes);
        let Arrived { source, destination, .. } = *arrived;
        let arrival = Arrival { source, destination, source_port: PORT, traffic_class: 0, bytes: &bytes };
        // The peer repeats a datagram for which the queue of the process has no space.
        !matches!(udp.forward_to(owner, &arrival), Err(Errno::CONNREFUSED | Errno::NOENT | Errno::PERM))
    }

    /// Removes the connection of a QP.
    pub(super) fn forget(&self, number: u32) {
        let mut links = unpoisoned(self.links.write());
        if let Some(link) = links.remove(&number) {
            *unpoisoned(self.counters.lock()) += link.counters();
        }
    }

    /// Returns the counters of all connections that the process has had.
    pub(crate) fn counters(&self) -> Counters {
        let links = unpoisoned(self.links.read());
        let mut counters = *unpoisoned(self.counters.lock());
        links.values().for_each(|link| counters += link.counters());
        if let Some(udp) = self.udp.get() {
            counters += udp.counters();
        }
        counters
    }

    /// Returns the counters of the connection of a QP.
    pub(crate) fn counters_of(&self, number: u32) -> Option<Counters> {
        Some(self.link(number)?.counters())
    }

    fn discard(&self) {
        unpoisoned(self.counters.lock()).discarded += 1;
    }

    fn link(&self, number: u32) -> Option<Arc<Link>> {
        unpoisoned(self.links.read()).get(&number).cloned()
    }

    /// Returns the carrier of datagrams.
    pub(crate) fn datagrams(&'static self) -> Arc<dyn Carrier> {
        Arc::new(Datagrams(self))
    }

    /// See [`Carrier::join_group`].
    pub(super) fn join_group(&self, group: Gid, member: u32) -> Result<(), SysErrno> {
        let mut groups = unpoisoned(self.groups.lock());
        if !groups.contains_key(&group)
            && let Some(udp) = self.udp.get()
        {
            udp.change_membership(group, true).map_err(|errno| SysErrno(errno.raw_os_error()))?;
        }
        groups.entry(group).or_default().insert(member);
        Ok(())
    }

    /// See [`Carrier::leave_group`].
    pub(super) fn leave_group(&self, group: Gid, member: u32) {
        let mut groups = unpoisoned(self.groups.lock());
        let Some(members) = groups.get_mut(&group) else { return };
        members.remove(&member);
        if members.is_empty() {
            groups.remove(&group);
            // An interface that was added later has not joined.
            _ = self.udp.get().map(|udp| udp.change_membership(group, false));
        }
    }

    /// Wakes a task when a management datagram arrives, see [`next_management`](Self::next_management).
    pub(crate) fn manage(&self, place: Place) {
        self.inbox.open(place);
    }

    /// Returns the first management datagram that has arrived.
    pub(crate) fn next_management(&self) -> Option<Arrived> {
        self.inbox.next()
    }

    /// Sends a management datagram.
    pub(crate) fn send_management(&self, route: &Route, bytes: &[u8]) {
        datagrams::send(self, route, &management::packet(), bytes);
    }

    /// Returns an empty batch.
    pub(super) fn batch(&self, header: &Header) -> Batch {
        let batch = unpoisoned(self.batches.lock()).pop();
        let mut batch = batch.unwrap_or_else(Batch::empty);
        batch.restart(header);
        batch
    }

    /// Keeps a batch for later packets.
    pub(super) fn keep(&self, batch: Batch) {
        let mut batches = unpoisoned(self.batches.lock());
        if batches.len() < MAX_BATCHES {
            batches.push(batch);
        }
    }

    pub(super) fn send(&self, batch: &mut Batch) -> Result<(), SendError> {
        match self.udp.get() {
            Some(udp) => udp.send(batch),
            None => Err(SendError::Route(Errno::NOTCONN)),
        }
    }

    /// Returns the address and the control messages of the packets of a route.
    pub(super) fn header(&self, route: &Route) -> Option<Header> {
        Some(self.udp.get()?.header(route))
    }

    /// Delivers the packets that have arrived, and returns whether there were any. If another thread does so, waits for
    /// it if `waits` is set, and otherwise returns `false`. The caller must hold no lock of a QP.
    fn receive(&self, waits: bool) -> bool {
        let Some(udp) = self.udp.get() else { return false };
        let mut receiving = match self.receiving.try_lock() {
            Ok(receiving) => receiving,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) if waits => unpoisoned(self.receiving.lock()),
            Err(TryLockError::WouldBlock) => return false,
        };
        let _held = Held::new();
        let receiving = receiving.get_or_insert_with(|| Receiving {
            receiver: Receiver::new(),
            touched: Vec::new(),
            unchecked: 0,
            overflows: udp.overflows(),
        });
        let mut has_found = false;
        for _ in 0..MAX_ROUNDS {
            let Receiving { receiver, touched, .. } = &mut *receiving;
            match udp.receive(receiver, |arrivals| self.arrived(udp, arrivals, touched)) {
                Ok(0) => {
                    self.check_overflows(udp, receiving);
                    break;
                }
                Ok(count) => {
                    has_found = true;
                    receiving.unchecked += count;
                }
                Err(error) => {
                    // An ICMP error of an earlier packet: the packet is lost.
                    rdma_mummy_sys::log!(debug, "a packet was lost: {error}");
                }
            }
            receiving.touched.drain(..).for_each(|link| link.handled());
        }
        has_found
    }

    /// If the receive buffers were full, asks the peers for the packets that were dropped. Otherwise those that have sent
    /// nothing since would wait for their time-outs, which can be seconds.
    fn check_overflows(&self, udp: &Udp, receiving: &mut Receiving) {
        if std::mem::take(&mut receiving.unchecked) < OVERFLOW {
            return;
        }
        let overflows = udp.overflows();
        if std::mem::replace(&mut receiving.overflows, overflows) == overflows {
            return;
        }
        let links: Vec<_> = unpoisoned(self.links.read()).values().cloned().collect();
        let now = Instant::now();
        links.iter().for_each(|link| link.has_lost_packets(now));
    }

    /// Handles the packets of a datagram.
    fn arrived<'d>(&self, udp: &Udp, arrivals: &mut dyn Iterator<Item = Arrival<'d>>, touched: &mut Vec<Arc<Link>>) {
        let now = Instant::now();
        let mut run = Run::new();
        let mut last: Option<Arc<Link>> = None;
        for arrival in arrivals {
            let link = match last.take() {
                Some(link) if link.number() == arrival.queue_pair() => Some(link),
                last => {
                    last.inspect(|link| link.deliver(&mut run));
                    None
                }
            };
            let Some((packet, payload)) = self.examined(udp, &arrival, link.is_some()) else {
                last = link;
                continue;
            };
            let Some(link) = link.or_else(|| self.link(packet.destination)) else {
                self.discard();
                continue;
            };
            if !link.accepts(packet.transport) || !link.is_between(arrival.source, arrival.destination) {
                self.discard();
            } else {
                link.arrived(&packet, payload, arrival.is_marked(), now, &mut run);
                if !touched.iter().any(|known| Arc::ptr_eq(known, &link)) {
                    touched.push(Arc::clone(&link));
                }
            }
            last = Some(link);
        }
        last.inspect(|link| link.deliver(&mut run));
    }

    /// Returns the packet of an arrival and its payload if it is for a connection of this process. Handles all others.
    fn examined<'d>(&self, udp: &Udp, arrival: &Arrival<'d>, is_known: bool) -> Option<(Packet, &'d [u8])> {
        let number = arrival.queue_pair();
        // QP 0 does not exist on Ethernet.
        let is_special = number <= management::NUMBER || number == MULTICAST_NUMBER;
        if !is_known && !is_special && !unpoisoned(self.blocks.read()).contains(&(number / BLOCK)) {
            udp.forward(arrival);
            return None;
        }
        let (packet, payload) = match Packet::read(arrival.bytes) {
            Ok(found) => found,
            Err(error) => {
                rdma_mummy_sys::log!(debug, "dropped a packet: {error:?}");
                self.discard();
                return None;
            }
        };
        if packet.partition & PARTITION != PARTITION {
            self.discard();
            return None;
        }
        match packet.transport {
            Transport::Datagram { key, source } if packet.destination == management::NUMBER => {
                self.inbox.arrived(arrival, &packet, payload, (key, source));
                None
            }
            Transport::Datagram { key, source } => {
                datagrams::arrived(self.deliver, arrival, &packet, payload, (key, source));
                None
            }
            _ => Some((packet, payload)),
        }
    }

    /// Delivers all packets that have arrived so far. The caller must hold no lock of a QP.
    pub(super) fn settle(&self) {
        // The limit matters only if a peer sends all the time.
        for _ in 0..MAX_ROUNDS {
            if !self.receive(true) {
                break;
            }
        }
    }

    /// Serves the sockets when a program has polled and found no completion. Returns whether anything has arrived.
    pub(crate) fn progress(&self) -> bool {
        let Some(sockets) = self.sockets.get() else { return false };
        if !sockets.is_attended() && self.attendance.polls.count().is_lt() {
            return false;
        }
        self.attendance.begin(sockets);
        let has_found = self.receive(false);
        yield_if_empty(has_found);
        has_found
    }

    /// Records that a program will wait for an event instead of polling.
    pub(crate) fn armed(&self) {
        self.attendance.polls.reset();
        if let Some(sockets) = self.sockets.get() {
            sockets.release(Reason::Polled);
        }
    }
}

impl Sockets for Engine {
    fn attend(&self) -> Option<BorrowedFd<'_>> {
        self.sockets.get()?.attend()
    }

    fn serve(&self) -> bool {
        self.receive(true)
    }

    fn leave(&self) {
        if let Some(sockets) = self.sockets.get() {
            sockets.release(Reason::Waits);
        }
    }
}
