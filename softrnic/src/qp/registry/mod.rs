//! Who is where: the queue pairs of the process by their numbers, and the multicast groups.

mod blocks;
mod numbered;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};
use std::thread;

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
use crate::wire::limits;
use crate::wire::message::Reply;
use crate::wire::operation::Service;
use crate::wire::packet::{Answer, AnswerKind, MULTICAST_NUMBER, Packet, Part, Payload};
use crate::wire::transport::{Carrier, Deliver, Transport};

/// A shared receive queue of XRC, which messages name by its number.
#[derive(Clone, Debug)]
pub(crate) struct SharedEntry {
    pub(crate) queue: Arc<ReceiveQueue>,
    /// Where its receives complete.
    pub(crate) completions: Arc<CompletionQueue>,
    pub(crate) xrc_domain: Arc<Domain>,
}

impl SharedEntry {
    /// Whether it is of this queue.
    pub(crate) fn is(&self, queue: &Arc<ReceiveQueue>) -> bool {
        Arc::ptr_eq(&self.queue, queue)
    }
}

/// The way to other processes: that of a child too, which has others.
static TRANSPORT: OnceLock<&'static dyn Transport> = OnceLock::new();

static REGISTRY: PerProcess<QpRegistry> = PerProcess::new(QpRegistry::new(), || Box::new(QpRegistry::new()));

/// The queue pairs that a message can reach.
#[derive(Debug)]
pub(crate) struct QpRegistry {
    pairs: Numbered<Weak<QueuePair>>,
    shared: Numbered<SharedEntry>,
    groups: RwLock<BTreeMap<Gid, BTreeMap<u32, Weak<QueuePair>>>>,
    /// Held while who is in a group changes, so that other processes are told in order.
    changing: Mutex<()>,
    blocks: Blocks,
    #[cfg(any(test, fuzzing))]
    taught: RwLock<BTreeMap<u32, Arc<dyn Carrier>>>,
    #[cfg(test)]
    taught_groups: RwLock<BTreeMap<Gid, Vec<Arc<dyn Carrier>>>>,
    /// Addresses that were seen to be this host's. One that it gives up stays: nobody else in the process has it.
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
            taught: RwLock::new(BTreeMap::new()),
            #[cfg(test)]
            taught_groups: RwLock::new(BTreeMap::new()),
            here: RwLock::new(BTreeSet::new()),
        }
    }

    /// Gives it the ways to queue pairs outside of this process; the first counts.
    pub(crate) fn set_transport(transport: &'static dyn Transport) {
        let _ = TRANSPORT.set(transport);
    }

    pub(crate) fn transport(&self) -> Option<&'static dyn Transport> {
        TRANSPORT.get().copied()
    }

    /// The way to the process that has a number, which no queue pair of this one has.
    pub(crate) fn carrier(&self, destination: Gid, number: u32) -> Option<Arc<dyn Carrier>> {
        #[cfg(any(test, fuzzing))]
        if let Some(carrier) = unpoisoned(self.taught.read()).get(&number) {
            return Some(Arc::clone(carrier));
        }
        let transport = self.transport()?;
        if self.blocks.has(number) { None } else { transport.carrier(destination, number) }
    }

    /// Where a number is found, for tests.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn teach(&self, number: u32, carrier: Option<Arc<dyn Carrier>>) {
        let mut taught = unpoisoned(self.taught.write());
        match carrier {
            Some(carrier) => taught.insert(number, carrier),
            None => taught.remove(&number),
        };
    }

    /// The ways to the other processes with members of a group.
    pub(crate) fn group(&self, group: Gid) -> Vec<Arc<dyn Carrier>> {
        #[cfg(test)]
        if let Some(ways) = unpoisoned(self.taught_groups.read()).get(&group) {
            return ways.clone();
        }
        self.transport().map(|transport| transport.group(group)).unwrap_or_default()
    }

    /// Who is in a group, for tests.
    #[cfg(test)]
    pub(crate) fn teach_group(&self, group: Gid, ways: Vec<Arc<dyn Carrier>>) {
        unpoisoned(self.taught_groups.write()).insert(group, ways);
    }

    /// Takes in what has come from other processes; whether there was any.
    #[inline]
    pub(crate) fn progress(&self) -> bool {
        timer::help();
        self.transport().is_some_and(|transport| transport.progress())
    }

    /// Takes in all that has come from other processes by now. The caller has no lock of a queue pair.
    pub(crate) fn settle(&self) {
        if let Some(transport) = self.transport() {
            transport.settle();
        }
    }

    /// A number that no queue pair has, of 24 bits and above 1; numbers come again late.
    pub(crate) fn number(&self) -> Result<u32, Errno> {
        if let Some(transport) = self.transport() {
            let in_use = self.pairs.count();
            if in_use >= limits::MAX_QP as usize {
                return Err(Errno::NO_MEMORY);
            }
            if let Some(number) = self.blocks.number(transport, in_use, |number| self.pairs.has(number)) {
                return Ok(number);
            }
        }
        self.pairs.number(limits::MAX_QP)
    }

    pub(crate) fn enter(&self, pair: &Arc<QueuePair>) {
        self.pairs.enter(pair.number(), Arc::downgrade(pair));
    }

    pub(crate) fn leave(&self, number: u32) {
        self.pairs.leave(number);
    }

    pub(crate) fn find(&self, number: u32) -> Option<Arc<QueuePair>> {
        self.pairs.find(number, Weak::upgrade)
    }

    /// Whether a GID is this host's.
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

    /// A number for a shared receive queue, by which XRC finds it.
    pub(crate) fn enter_shared(&self, entry: SharedEntry) -> Result<u32, Errno> {
        let number = self.shared.number(limits::MAX_SRQ)?;
        self.shared.enter(number, entry);
        Ok(number)
    }

    /// Ends a shared receive queue of XRC: when this returns nobody has it but the caller, who holds no lock.
    pub(crate) fn leave_shared(&self, number: u32, queue: &Arc<ReceiveQueue>) {
        self.shared.leave(number);
        // Messages that have come in part hold it, and may never come in whole.
        for pair in self.pairs.all(Weak::upgrade) {
            if pair.parts().service == Service::XrcReceive {
                pair.release(queue);
            }
        }
        // Queue pairs that are being closed, and are not in the list any more, let go of it by themselves.
        while Arc::strong_count(queue) > 1 {
            thread::yield_now();
        }
    }

    pub(crate) fn find_shared(&self, number: u32) -> Option<SharedEntry> {
        self.shared.find(number, |entry| Some(entry.clone()))
    }

    /// `ibv_attach_mcast`. Attaching twice is no error.
    pub(crate) fn attach(&self, group: Gid, pair: &Arc<QueuePair>) -> Result<(), Errno> {
        let _alone = unpoisoned(self.changing.lock());
        let is_first = self.add_member(group, pair)?;
        if let Some(transport) = self.transport().filter(|_| is_first) {
            transport.joined(group);
        }
        Ok(())
    }

    /// Whether it is the first of its group.
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

    /// `ibv_detach_mcast`; `EINVAL` where it is not attached.
    pub(crate) fn detach(&self, group: Gid, number: u32) -> Result<(), Errno> {
        let _alone = unpoisoned(self.changing.lock());
        let was_last = self.remove_member(group, number)?;
        if let Some(transport) = self.transport().filter(|_| was_last) {
            transport.left(group);
        }
        Ok(())
    }

    /// Whether it was the last of its group.
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

    /// Who is attached to a group.
    pub(crate) fn members(&self, group: Gid) -> Vec<Arc<QueuePair>> {
        let groups = unpoisoned(self.groups.read());
        groups.get(&group).into_iter().flat_map(BTreeMap::values).filter_map(Weak::upgrade).collect()
    }

    /// Whether a queue pair is attached anywhere, and so cannot be destroyed.
    pub(crate) fn is_attached(&self, number: u32) -> bool {
        unpoisoned(self.groups.read()).values().any(|members| members.contains_key(&number))
    }
}

/// Delivers to the queue pairs of this process.
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
            for member in registry.members(request.destination) {
                member.part_arrived(part, payload, back);
            }
            return;
        }
        if let Some(pair) = registry.find(part.number) {
            return pair.part_arrived(part, payload, back);
        }
        if request.service.is_reliable() && (part.offset == 0 || part.is_last()) {
            let answer = Answer {
                number: request.source_number,
                source_number: part.number,
                psn: request.psn,
                attempt: part.attempt,
                kind: AnswerKind::Reply(Reply::Silence),
            };
            // Where there is no room, more such answers are on their way, and one is enough.
            if let Err(stuck) = back.put(&Packet::Answer(answer), Payload::Bytes(&[])) {
                log::debug!("nobody is {:#x}, and its peer is not told: {stuck:?}", part.number);
            }
        }
    }

    fn answer(&self, answer: &Answer, payload: &[Segment]) -> bool {
        let registry = QpRegistry::of_process();
        registry.find(answer.number).is_none_or(|pair| pair.answer_arrived(answer, payload))
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
}
