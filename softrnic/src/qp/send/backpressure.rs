//! Waiting for room in other processes, of what may be lost: datagrams, and messages of UC.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::qp::QueuePair;
use crate::qp::send::inbox::is_same;
use crate::qp::timer::NextCall;
use crate::wire::packet::{Packet, Payload};
use crate::wire::transport::{Carrier, Stuck};

/// A process that takes nothing in for so long misses what waits for it. On a busy machine one that lives may well not run for a
/// tenth of it.
const LOSS: Duration = Duration::from_secs(1);

/// How long the oldest request has waited, and for whom none does.
#[derive(Debug)]
pub(in crate::qp) struct Backpressure {
    /// [`LOSS`], but in tests.
    pub(in crate::qp) patience: Duration,
    /// Since when it finds no room, and what the process had taken in by then.
    since: Option<(Instant, u64)>,
    /// When there will be another look.
    alarm: NextCall,
    /// The ways that were given up, and have not had any room since.
    deaf: Vec<Weak<dyn Carrier>>,
}

impl Backpressure {
    pub(in crate::qp) const fn new() -> Self {
        Self { patience: LOSS, since: None, alarm: NextCall::new(), deaf: Vec::new() }
    }

    /// A request begins to go, or some of it went.
    pub(in crate::qp) fn begin(&mut self) {
        self.since = None;
    }

    /// Forgets all, but that an alarm will ring.
    pub(in crate::qp) fn clear(&mut self) {
        self.since = None;
        self.deaf.clear();
    }

    /// Puts a packet. Where there is no room the queue pair is called when there is, unless the way was given up.
    pub(in crate::qp) fn put(
        &mut self,
        pair: &QueuePair,
        way: &Arc<dyn Carrier>,
        packet: &Packet,
        payload: Payload<'_>,
    ) -> Result<(), Stuck> {
        let Some(place) = self.place(way) else {
            return pair.put(way, packet, payload);
        };
        let put = way.put(packet, payload);
        if put != Err(Stuck::Full) {
            self.deaf.swap_remove(place);
        }
        put
    }

    pub(in crate::qp) fn is_given_up(&self, way: &Arc<dyn Carrier>) -> bool {
        self.place(way).is_some()
    }

    fn place(&self, way: &Arc<dyn Carrier>) -> Option<usize> {
        self.deaf.iter().position(|deaf| is_same(deaf, way))
    }

    /// Whether the oldest request, which finds no room, is to wait on: then there will be another look.
    /// `taken` counts what the process has taken in, where it waits for one.
    pub(in crate::qp) fn waits(&mut self, pair: &QueuePair, taken: u64) -> bool {
        let now = Instant::now();
        // A process that takes in what others send is not deaf: this one has not had its turn.
        let since = match self.since {
            Some((since, before)) if before == taken => since,
            _ => now,
        };
        self.since = Some((since, taken));
        let until = since + self.patience;
        if until <= now {
            return false;
        }
        // One that rings earlier comes back to here.
        self.alarm.set(pair, until, now);
        true
    }

    /// What waited for this way is lost, and nothing waits for it until it has room.
    pub(in crate::qp) fn give_up(&mut self, way: &Arc<dyn Carrier>) {
        if !self.is_given_up(way) {
            self.deaf.retain(|deaf| deaf.strong_count() > 0);
            self.deaf.push(Arc::downgrade(way));
        }
    }
}
