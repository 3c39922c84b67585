//! The connections of the process, by their ids.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::super::calls::{random, system};
use super::Attached;
use crate::net::roce::connect::Connection;
use crate::net::roce::engine::Engine;
use crate::net::roce::management::Arrived;
use crate::net::roce::probe::Probe;
use crate::net::roce::socket::batch::Route;
use crate::qp::registry::QpRegistry;
use crate::sys::errno::Errno;
use crate::wire::address::Gid;
use crate::wire::packet::{BLOCK, MAX_NUMBER};

/// The maximum number of connections, without those on which no request or reply was received yet.
const MAX_CONNECTIONS: usize = 1 << 16;
/// The bits of an id that count. The others are a block of QP numbers, which has 12 bits.
pub(super) const COUNTER: u32 = (1 << 20) - 1;
/// The maximum number of hosts that are probed at a time. Each probe has a descriptor.
const MAX_PROBES: usize = 16;
/// How long a probe stays without an error before another one replaces it.
const PROBE_TIME: Duration = Duration::from_millis(100);
/// How many requests that were passed to other processes are remembered, and how long.
const MAX_PASSED: usize = 1024;
const PASSED_TIME: Duration = Duration::from_secs(10);

/// The connections by their ids.
#[derive(Default)]
pub(in crate::cm) struct Connections {
    pub(super) engine: Option<&'static Engine>,
    pub(super) all: BTreeMap<u32, Entry>,
    /// The connections that peers have requested.
    pub(super) requested: BTreeMap<Origin, u32>,
    pub(super) deadlines: BTreeSet<(Instant, u32)>,
    /// The upper bits of all ids.
    pub(super) base: Option<u32>,
    pub(super) last: u32,
    /// The names of the listeners whose requests other processes pass to this one.
    pub(super) services: BTreeSet<String>,
    /// The requests that were passed to other processes, each of which may since have stopped to listen. A duplicate is
    /// not rejected, because the process that has the request repeats its reply.
    pub(super) passed: VecDeque<(Instant, Origin)>,
    /// Probes of the hosts that have not responded for some time: the addresses, and when the probe was sent.
    pub(super) probes: BTreeMap<(Gid, Gid), (Instant, Probe)>,
}

/// The address of a peer, its id of the connection, and whether it has requested the QP of a datagram service.
pub(super) type Origin = (Gid, u32, bool);

pub(super) struct Entry {
    pub(super) connection: Connection,
    pub(super) route: Route,
    /// The service that was requested.
    pub(super) service: u64,
    pub(super) owner: Owner,
    /// The peer, if it has requested the connection.
    pub(super) origin: Option<Origin>,
    pub(super) deadline: Option<Instant>,
}

/// The identifier that gets the events of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    None,
    Identifier(usize),
    /// The program has not taken the event of the request from this listener.
    Listener(usize),
}

impl Connections {
    /// Returns an id that is not in use.
    pub(super) fn next_id(&mut self) -> Result<u32, Errno> {
        if self.all.len() >= MAX_CONNECTIONS {
            // A connection that has ended is not required, unless a duplicate arrives.
            let mut numbers = self.deadlines.iter().map(|(_, number)| *number);
            let ended = numbers.find(|number| self.all.get(number).is_some_and(|one| one.connection.has_ended()));
            self.remove(ended.ok_or(Errno::NO_MEMORY)?);
        }
        let base = match self.base {
            Some(base) => base,
            None => {
                let base = self.own_block()? << COUNTER.trailing_ones();
                // The truncation keeps random bits.
                (self.base, self.last) = (Some(base), random() as u32);
                base
            }
        };
        loop {
            self.last = self.last.wrapping_add(1) & COUNTER;
            let id = base | self.last;
            if self.last != 0 && !self.all.contains_key(&id) {
                return Ok(id);
            }
        }
    }

    /// Returns a block of QP numbers that other processes find here.
    pub(super) fn own_block(&self) -> Result<u32, Errno> {
        let engine = self.engine.ok_or(Errno(libc::ENODEV))?;
        if let Some(block) = QpRegistry::of_process().block() {
            return engine.own(block * BLOCK).map(|()| block).map_err(system);
        }
        loop {
            let block = random() as u32 % (MAX_NUMBER / BLOCK);
            if engine.claim(block).map_err(system)? {
                return Ok(block);
            }
        }
    }

    /// Returns the connection of an identifier.
    pub(super) fn of(&mut self, id: usize, attached: Option<Attached>) -> Option<(u32, &mut Entry)> {
        let number = attached?.connection;
        let entry = self.all.get_mut(&number).filter(|entry| entry.owner == Owner::Identifier(id))?;
        Some((number, entry))
    }

    /// Returns the connection to a QP of the peer that has sent a message.
    pub(super) fn connection_to(&self, arrived: &Arrived, remote_qp_number: u32) -> Option<u32> {
        let ends = (arrived.destination, arrived.source);
        let is_to = |entry: &Entry| entry.connection.is_to(remote_qp_number) && entry.ends() == ends;
        self.all.iter().find(|(_, entry)| is_to(entry)).map(|(number, _)| *number)
    }

    pub(super) fn add(&mut self, number: u32, entry: Entry) {
        if let Some(origin) = entry.origin {
            self.requested.insert(origin, number);
        }
        self.all.insert(number, entry);
    }

    pub(super) fn remove(&mut self, number: u32) {
        let Some(entry) = self.all.remove(&number) else { return };
        if let Some(origin) = entry.origin {
            self.requested.remove(&origin);
        }
        if let Some(deadline) = entry.deadline {
            self.deadlines.remove(&(deadline, number));
        }
        self.probes.remove(&entry.ends());
    }

    /// Finds out whether the host of a peer that does not respond uses RoCE at all. Returns the connections that have
    /// changed because it does not.
    pub(super) fn check_host(&mut self, number: u32, now: Instant) -> Vec<u32> {
        let Some(entry) = self.all.get(&number) else { return Vec::new() };
        let ends = entry.ends();
        match self.probes.get(&ends) {
            Some((_, probe)) if probe.is_refused() => {
                self.probes.remove(&ends);
                let of_host = self.all.iter_mut().filter(|(_, entry)| entry.ends() == ends);
                return of_host
                    .map(|(number, entry)| {
                        entry.connection.refused(now);
                        *number
                    })
                    .collect();
            }
            Some((since, _)) if now < *since + PROBE_TIME => {}
            known => {
                let has_space = known.is_some() || self.probes.len() < MAX_PROBES;
                let probe = Some(&entry.route).filter(|_| has_space && entry.connection.is_waiting());
                match probe.and_then(Probe::new) {
                    Some(probe) => drop(self.probes.insert(ends, (now, probe))),
                    None => drop(self.probes.remove(&ends)),
                }
            }
        }
        Vec::new()
    }

    /// Remembers a request that was passed to another process.
    pub(super) fn remember(&mut self, origin: Origin, now: Instant) {
        if !self.has_passed(origin, now) {
            self.passed.truncate(MAX_PASSED - 1);
            self.passed.push_front((now, origin));
        }
    }

    /// Whether another process may have a request.
    pub(super) fn has_passed(&self, origin: Origin, now: Instant) -> bool {
        self.passed.iter().take_while(|(since, _)| now < *since + PASSED_TIME).any(|(_, passed)| *passed == origin)
    }
}

impl Entry {
    /// The addresses of this end and of the peer.
    pub(super) fn ends(&self) -> (Gid, Gid) {
        (self.route.source, self.route.destination)
    }
}

#[cfg(test)]
mod tests {
    use super::super::convert;
    use super::*;
    use crate::cm::messages::{Kind, Message};
    use crate::net::roce::cm_message::SidrReq;

    const REQ: SidrReq = SidrReq { request_id: 1, partition: 0xffff, service: 1, private: [0; SidrReq::PRIVATE] };

    /// Adds a request for a service that was answered, or one that was not.
    fn add(connections: &mut Connections, number: u32, is_answered: bool) {
        let now = Instant::now();
        let mut connection = Connection::asked(number, 0, &REQ, now);
        if is_answered {
            connection.answer(convert::sidr_rep(1, &Message::new(Kind::DatagramReply)), now);
            while connection.next_message().is_some() {}
        }
        let (origin, deadline) = (Some((Gid::ZERO, number, true)), connection.deadline());
        let route = Route { source: Gid::ZERO, destination: Gid::ZERO, traffic_class: 0, hop_limit: 0, flow_label: 0 };
        connections.deadlines.extend(deadline.map(|deadline| (deadline, number)));
        connections.add(number, Entry { connection, route, service: 1, owner: Owner::None, origin, deadline });
    }

    /// A peer that sends many requests must not prevent that the program connects.
    #[test]
    #[cfg_attr(miri, ignore = "many connections")]
    fn connections_that_have_ended_leave_space_for_others() {
        let mut connections = Connections { base: Some(0), ..Connections::default() };
        (2..=MAX_CONNECTIONS as u32).for_each(|number| add(&mut connections, number, false));
        add(&mut connections, 1, true);
        assert!(connections.next_id().is_ok());
        assert_eq!((connections.all.len(), connections.requested.len()), (MAX_CONNECTIONS - 1, MAX_CONNECTIONS - 1));
        assert!(!connections.all.contains_key(&1) && connections.deadlines.is_empty());
        add(&mut connections, 1, false);
        assert_eq!(connections.next_id(), Err(Errno::NO_MEMORY));
    }

    #[test]
    #[cfg_attr(miri, ignore = "many requests")]
    fn passed_requests_are_remembered_for_some_time() {
        let (now, origin) = (Instant::now(), |number| (Gid::ZERO, number, false));
        let mut connections = Connections::default();
        for number in 0..=MAX_PASSED as u32 {
            connections.remember(origin(number), now);
            connections.remember(origin(number), now);
        }
        assert_eq!(connections.passed.len(), MAX_PASSED);
        assert!(!connections.has_passed(origin(0), now) && connections.has_passed(origin(1), now));
        assert!(!connections.has_passed(origin(1), now + PASSED_TIME));
    }
}
