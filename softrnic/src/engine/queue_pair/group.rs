//! Datagrams to a group, to its members in other processes: one that has no room is waited for, as a single peer is.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::flight::LOSS;
use super::inbox::is_same;
use super::{QueuePair, away};
use crate::engine::memory::Segment;
use crate::engine::network::{MULTICAST_NUMBER, Network};
use crate::engine::packet::{Carrier, Packet, Part, Payload, Stuck};
use crate::engine::request::Request;
use crate::engine::timer;
use crate::engine::work::SendWork;

/// What is left of the oldest request, where that is a datagram to a group. All is empty while there is room.
#[derive(Debug)]
pub(super) struct Group {
    /// How long a process is waited for: [`LOSS`], but in tests.
    pub(super) patience: Duration,
    /// The ways that had no room for it, and since when.
    missing: Option<(Instant, Vec<Arc<dyn Carrier>>)>,
    /// The ways that had none for so long, and have not had any since: they are not waited for.
    deaf: Vec<Weak<dyn Carrier>>,
}

/// How far a datagram has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Went {
    /// It went, or is lost, to all.
    All,
    /// Some process has no room for it yet.
    Some,
    /// Its memory cannot be read.
    Fault,
}

impl Group {
    pub(super) const fn new() -> Self {
        Self { patience: LOSS, missing: None, deaf: Vec::new() }
    }

    /// Whether the oldest request has begun to go, and to this process's members too.
    pub(super) fn has_begun(&self) -> bool {
        self.missing.is_some()
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.missing = None;
        self.deaf.clear();
    }

    /// Puts a datagram on its way to the other processes of its group, or to those that are missing. A process that has no room in
    /// all that time misses it alone.
    pub(super) fn send(&mut self, pair: &QueuePair, work: &SendWork, request: &Request, segments: &[Segment]) -> Went {
        let (since, mut ways) = match self.missing.take() {
            Some((since, ways)) => (Some(since), ways),
            None => (None, Network::of_process().group(request.destination)),
        };
        // Datagrams are of 4096 bytes at most.
        let length = request.length as u32;
        let part = Part { number: MULTICAST_NUMBER, request: *request, offset: 0, length, attempt: 0 };
        let payload = if work.is_inline { Payload::Bytes(&work.inline) } else { Payload::Memory(segments) };
        let mut is_faulty = false;
        ways.retain(|way| match self.put(pair, way, &Packet::Part(part), payload) {
            Err(Stuck::Full) => true,
            Err(Stuck::Fault) => {
                is_faulty = true;
                false
            }
            Ok(()) | Err(Stuck::Gone) => false,
        });
        if is_faulty {
            return Went::Fault;
        }
        if ways.is_empty() {
            return Went::All;
        }
        let now = Instant::now();
        let since = since.unwrap_or_else(|| {
            timer::at(now + self.patience, pair.this.clone());
            now
        });
        if now - since < self.patience {
            self.missing = Some((since, ways));
            return Went::Some;
        }
        self.deaf.retain(|deaf| deaf.strong_count() > 0);
        self.deaf.extend(ways.iter().map(Arc::downgrade));
        Went::All
    }

    /// Puts it on one way. [`Stuck::Full`] where that is to be waited for.
    fn put(
        &mut self,
        pair: &QueuePair,
        way: &Arc<dyn Carrier>,
        packet: &Packet,
        payload: Payload<'_>,
    ) -> Result<(), Stuck> {
        let Some(place) = self.deaf.iter().position(|deaf| is_same(deaf, way)) else {
            return away::put(pair, way, packet, payload);
        };
        match way.put(packet, payload) {
            // It is lost, and nobody is told.
            Err(Stuck::Full) => Ok(()),
            put => {
                self.deaf.swap_remove(place);
                put
            }
        }
    }
}
