//! The registry of QPs by number, and of multicast groups.

mod blocks;
mod numbered;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};
use std::{ptr, thread};

use self::blocks::Blocks;
use self::numbered::Numbered;
use crate::cq::CompletionQueue;
use crate::mem::domain::Domain;
use crate::qp::{QueuePair, timer};
use crate::srq::ReceiveQueue;
use crate::sys::errno::Errno;
use crate::sys::fork::PerProcess;
use crate::sys::{addresses, unpoisoned};
use crate::wire::address::Gid;
use crate::wire::bytes::Segment;
use crate::wire::condition::Condition;
use crate::wire::limits;
use crate::wire::message::{Refusal, Reply};
use crate::wire::operation::Service;
use crate::wire::packet::{MULTICAST_NUMBER, Packet, Part, Payload, Response, ResponseKind};
use crate::wire::transport::{Carrier, Deliver, Fabric, Routes, Sockets, Transport};

/// An XRC shared receive queue. Messages address it by its number.
#[derive(Clone, Debug)]
pub(crate) struct SharedEntry {
    pub(crate) queue: Arc<ReceiveQueue>,
    /// The completion queue to which the completions of its receives are added.
    pub(crate) completions: Arc<CompletionQueue>,
    pub(crate) xrc_domain: Arc<Domain>,
}

impl SharedEntry {
    /// Whether this entry refers to `queue`.
    pub(crate) fn is(&self, queue: &Arc<ReceiveQueue>) -> bool {
        Arc::ptr_eq(&self.queue, queue)
    }
}

/// The transports of the process, and the routes to other processes, if they are enabled. After a `fork`, the same
/// transports serve the connections of the child.
#[derive(Debug)]
pub(crate) struct Transports {
    pub(crate) all: &'static [&'static dyn Transport],
    pub(crate) routes: Option<&'static dyn Routes>,
}

static TRANSPORTS: OnceLock<&'static Transports> = OnceLock::new();

static REGISTRY: PerProcess<QpRegistry> = PerProcess::new(QpRegistry::new(), || Box::new(QpRegistry::new()));

/// The QPs that messages can reach.
#[derive(Debug)]
pub(crate) struct QpRegistry {
    pairs: Numbered<Weak<QueuePair>>,
    shared: Numbered<SharedEntry>,
    groups: RwLock<BTreeMap<Gid, BTreeMap<u32, Weak<QueuePair>>>>,
    /// This lock is held while a group changes, so that other processes are notified of the changes in order.
    changing: Mutex<()>,
    blocks: Blocks,
    #[cfg(any(test, fuzzing))]
    test_routes: RwLock<BTreeMap<u32, Arc<dyn Carrier>>>,
    #[cfg(test)]
    test_groups: RwLock<BTreeMap<Gid, Vec<Arc<dyn Carrier>>>>,
    /// The addresses that this host has or had. A former address may stay in the set, because RoCE devices reach no
    /// other host.
    here: RwLock<BTreeSet<Gid>>,
}

impl QpRegistry {
    pub(crate) fn of_process() -> &'static Self {
        REGISTRY.get()
    }

    const fn new() -> Self {
        Self {
            pairs: Numbered::new(),
            shared: Numbered::new(),
            groups: RwLock::new(BTreeMap::new()),
            changing: Mutex::new(()),
            blocks: Blocks::new(),
            #[cfg(any(test, fuzzing))]
            test_routes: RwLock::new(BTreeMap::new()),
            #[cfg(test)]
            test_groups: RwLock::new(BTreeMap::new()),
            here: RwLock::new(BTreeSet::new()),
        }
    }

    /// Sets the transports. Only the first call has an effect.
    pub(crate) fn set_transports(transports: &'static Transports) {
        let _ = TRANSPORTS.set(transports);
    }

    #[inline]
    fn transports(&self) -> &'static [&'static dyn Transport] {
        TRANSPORTS.get().map_or(&[], |transports| transports.all)
    }

    fn routes(&self) -> Option<&'static dyn Routes> {
        TRANSPORTS.get()?.routes
    }

    /// Returns the carrier to the QP with this number, if the QP belongs to another process.
    pub(crate) fn carrier(&self, number: u32) -> Option<Arc<dyn Carrier>> {
        #[cfg(any(test, fuzzing))]
        if let Some(carrier) = unpoisoned(self.test_routes.read()).get(&number) {
            return Some(Arc::clone(carrier));
        }
        self.routes().filter(|_| !self.blocks.has(number))?.carrier(number)
    }

    /// Opens the route to a QP of another process, before a connection to it is established.
    ///
    /// # Errors
    ///
    /// See [`Routes::reach`]. `ENETUNREACH` if the routes are disabled.
    pub(crate) fn reach(&self, number: u32) -> Result<(), Errno> {
        match TRANSPORTS.get() {
            Some(transports) => transports.routes.ok_or(Errno(libc::ENETUNREACH))?.reach(number),
            None => Ok(()),
        }
    }

    /// Sets the carrier to a QP number. Only tests use this function.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn set_test_route(&self, number: u32, carrier: Option<Arc<dyn Carrier>>) {
        let mut test_routes = unpoisoned(self.test_routes.write());
        match carrier {
            Some(carrier) => test_routes.insert(number, carrier),
            None => test_routes.remove(&number),
        };
    }

    /// Returns the carriers to the other processes that have members of a group.
    pub(crate) fn group(&self, group: Gid) -> Vec<Arc<dyn Carrier>> {
        #[cfg(test)]
        if let Some(ways) = unpoisoned(self.test_groups.read()).get(&group) {
            return ways.clone();
        }
        self.routes().map(|routes| routes.group(group)).unwrap_or_default()
    }

    /// Sets the carriers of a group. Only tests use this function.
    #[cfg(test)]
    pub(crate) fn set_test_group(&self, group: Gid, ways: Vec<Arc<dyn Carrier>>) {
        unpoisoned(self.test_groups.write()).insert(group, ways);
    }

    /// Delivers the packets that have arrived on the transports. If the thread could not be started, also runs
    /// the alarms that are due. Returns whether packets were delivered.
    #[inline]
    pub(crate) fn progress(&self) -> bool {
        timer::run_due_if_no_thread();
        self.transports().iter().fold(false, |has_found, transport| transport.progress() | has_found)
    }

    /// Notifies the transports that the program will wait for an event instead of polling.
    pub(crate) fn armed(&self) {
        self.transports().iter().for_each(|transport| transport.armed());
    }

    /// Returns the sockets of the transport of a fabric, if it has any.
    pub(crate) fn sockets(&self, fabric: Fabric) -> Option<&'static dyn Sockets> {
        self.transports().iter().find(|transport| transport.fabric() == fabric)?.sockets()
    }

    /// Delivers all packets that other processes have sent so far. The caller must hold no lock of a QP.
    pub(crate) fn settle(&self) {
        if let Some(routes) = self.routes() {
            routes.settle();
        }
    }

    /// Returns a free QP number of 24 bits, above 1. Numbers are reused as late as possible.
    pub(crate) fn number(&self) -> Result<u32, Errno> {
        if let Some(routes) = self.routes() {
            let in_use = self.pairs.count();
            if in_use >= limits::MAX_QP as usize {
                return Err(Errno::NO_MEMORY);
            }
            if let Some(number) = self.blocks.number(routes, in_use, |number| self.pairs.has(number)) {
                return Ok(number);
            }
        }
        self.pairs.number(limits::MAX_QP)
    }

    /// Returns a block of QP numbers that no other process of the host uses, or `None` if there are no blocks.
    pub(crate) fn block(&self) -> Option<u32> {
        self.blocks.first(self.routes()?)
    }

    pub(crate) fn enter(&self, pair: &Arc<QueuePair>) {
        self.pairs.enter(pair.number(), Arc::downgrade(pair));
    }

    pub(crate) fn leave(&self, number: u32) {
        self.pairs.leave(number);
    }

    /// Returns the QPs of the device with this condition.
    pub(crate) fn of_device(&self, condition: &'static Condition) -> Vec<Arc<QueuePair>> {
        let mut pairs = self.pairs.all(Weak::upgrade);
        pairs.retain(|pair| ptr::eq(pair.parts().condition, condition));
        pairs
    }

    pub(crate) fn find(&self, number: u32) -> Option<Arc<QueuePair>> {
        self.pairs.find(number, Weak::upgrade)
    }

    /// Returns whether a GID is an address of this host.
    pub(crate) fn is_here(&self, gid: Gid) -> bool {
        if unpoisoned(self.here.read()).contains(&gid) {
            return true;
        }
        let is_here = addresses::all().iter().any(|address| Gid::from(address.ip) == gid);
        if is_here {
            unpoisoned(self.here.write()).insert(gid);
        }
        is_here
    }

    /// Registers an XRC shared receive queue under a new number.
    pub(crate) fn enter_shared(&self, entry: SharedEntry) -> Result<u32, Errno> {
        let number = self.shared.number(limits::MAX_SRQ)?;
        self.shared.enter(number, entry);
        Ok(number)
    }

    /// Removes an XRC shared receive queue, and waits until the caller has the only reference to it. The caller must
    /// hold no lock.
    pub(crate) fn leave_shared(&self, number: u32, queue: &Arc<ReceiveQueue>) {
        self.shared.leave(number);
        // Messages that have partly arrived refer to the queue, and may never complete.
        for pair in self.pairs.all(Weak::upgrade) {
            if pair.parts().service == Service::XrcReceive {
                pair.release(queue);
            }
        }
        // A QP that is being closed is no longer in the registry, and drops its references to the queue itself.
        while Arc::strong_count(queue) > 1 {
            thread::yield_now();
        }
    }

    pub(crate) fn find_shared(&self, number: u32) -> Option<SharedEntry> {
        self.shared.find(number, |entry| Some(entry.clone()))
    }

    /// Attaches a QP to a group, as `ibv_attach_mcast` requires. Attaching a QP twice is not an error.
    pub(crate) fn attach(&self, group: Gid, pair: &Arc<QueuePair>) -> Result<(), Errno> {
        let _alone = unpoisoned(self.changing.lock());
        let is_first = self.add_member(group, pair)?;
        if let Some(carrier) = pair.route.shared()
            && let Err(errno) = carrier.join_group(group, pair.number())
        {
            self.remove_member(group, pair.number())?;
            return Err(errno);
        }
        if let Some(routes) = self.routes().filter(|_| is_first) {
            routes.joined(group);
        }
        Ok(())
    }

    /// Adds a member to a group. Returns whether the member is the first one in this process.
    fn add_member(&self, group: Gid, pair: &Arc<QueuePair>) -> Result<bool, Errno> {
        let mut groups = unpoisoned(self.groups.write());
        if !groups.contains_key(&group) && groups.len() >= limits::MAX_MCAST_GRP as usize {
            return Err(Errno::NO_MEMORY);
        }
        let members = groups.entry(group).or_default();
        if !members.contains_key(&pair.number()) && members.len() >= limits::MAX_MCAST_QP_ATTACH as usize {
            return Err(Errno::NO_MEMORY);
        }
        let is_first = members.is_empty();
        members.insert(pair.number(), Arc::downgrade(pair));
        Ok(is_first)
    }

    /// Detaches a QP from a group, as `ibv_detach_mcast` requires. Returns `EINVAL` if the QP is not attached.
    pub(crate) fn detach(&self, group: Gid, pair: &QueuePair) -> Result<(), Errno> {
        let _alone = unpoisoned(self.changing.lock());
        let was_last = self.remove_member(group, pair.number())?;
        if let Some(carrier) = pair.route.shared() {
            carrier.leave_group(group, pair.number());
        }
        if let Some(routes) = self.routes().filter(|_| was_last) {
            routes.left(group);
        }
        Ok(())
    }

    /// Removes a member from a group. Returns whether the member was the last one in this process.
    fn remove_member(&self, group: Gid, number: u32) -> Result<bool, Errno> {
        let mut groups = unpoisoned(self.groups.write());
        let members = groups.get_mut(&group).ok_or(Errno::INVALID)?;
        members.remove(&number).ok_or(Errno::INVALID)?;
        let was_last = members.is_empty();
        if was_last {
            groups.remove(&group);
        }
        Ok(was_last)
    }

    pub(crate) fn members(&self, group: Gid) -> Vec<Arc<QueuePair>> {
        let groups = unpoisoned(self.groups.read());
        groups.get(&group).into_iter().flat_map(BTreeMap::values).filter_map(Weak::upgrade).collect()
    }

    /// Whether a QP is attached to any group. If it is, it cannot be destroyed.
    pub(crate) fn is_attached(&self, number: u32) -> bool {
        unpoisoned(self.groups.read()).values().any(|members| members.contains_key(&number))
    }
}

/// Delivers packets from other processes to the QPs of this process.
#[derive(Debug)]
pub(crate) struct ToQueuePairs;

impl Deliver for ToQueuePairs {
    fn part(&self, part: &Part, payload: &[Segment], back: &Arc<dyn Carrier>) {
        let registry = QpRegistry::of_process();
        let request = &part.request;
        if part.number == MULTICAST_NUMBER {
            if request.service != Service::UnreliableDatagram {
                return;
            }
            for member in registry.members(request.destination).iter().filter(|member| member.is_reached_by(back)) {
                member.part_arrived(part, payload, back);
            }
            return;
        }
        if let Some(pair) = registry.find(part.number).filter(|pair| pair.is_reached_by(back)) {
            return pair.part_arrived(part, payload, back);
        }
        if request.service.is_reliable() && (part.offset == 0 || part.is_last()) {
            let response = Response {
                number: request.source_number,
                source_number: part.number,
                psn: request.psn,
                attempt: part.attempt,
                kind: ResponseKind::Reply(Reply::Silence),
            };
            // If the carrier is full, such replies are already in flight on it. One of them is enough, so this reply
            // may be dropped.
            if let Err(stuck) = back.put(&Packet::Response(response), Payload::Bytes(&[])) {
                rdma_mummy_sys::log!(
                    debug,
                    "QP {:#x} does not exist, and the reply to its peer is lost: {stuck:?}",
                    part.number
                );
            }
        }
    }

    fn again(&self, part: &Part, back: &Arc<dyn Carrier>) {
        if let Some(pair) = QpRegistry::of_process().find(part.number) {
            pair.read_again(part, back);
        }
    }

    fn response(&self, response: &Response, payload: &[Segment]) -> bool {
        let registry = QpRegistry::of_process();
        registry.find(response.number).is_none_or(|pair| pair.response_arrived(response, payload))
    }

    fn is_settled(&self, number: u32) -> bool {
        QpRegistry::of_process().find(number).is_none_or(|pair| pair.is_settled())
    }

    fn lost(&self, carrier: &Arc<dyn Carrier>) {
        let registry = QpRegistry::of_process();
        for pair in registry.pairs.all(Weak::upgrade) {
            pair.carrier_lost(carrier);
        }
    }

    fn ended(&self, number: u32, carrier: &Arc<dyn Carrier>, refusal: Option<Refusal>) {
        if let Some(pair) = QpRegistry::of_process().find(number) {
            pair.connection_ended(carrier, refusal);
        }
    }
}
