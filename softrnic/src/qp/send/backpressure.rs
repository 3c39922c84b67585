//! Backpressure for messages that may be lost: datagrams, and messages on unreliable connections (UC).

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::qp::QueuePair;
use crate::qp::send::inbox::is_same;
use crate::qp::timer::NextCall;
use crate::wire::packet::{Packet, Payload};
use crate::wire::transport::{Carrier, Stuck};

/// If a process receives nothing for this time, messages to the process are dropped. The time is counted separately for
/// each process, even if the processes are members of the same multicast group. Later messages to the process are
/// dropped at once, until it receives again. The time is one second, because on a busy machine a process may not run
/// for a tenth of a second.
const LOSS: Duration = Duration::from_secs(1);

/// How long the oldest request has waited, and the carriers that have timed out.
#[derive(Debug)]
pub(in crate::qp) struct Backpressure {
    /// The time after which a carrier times out. It is [`LOSS`], except in tests.
    pub(in crate::qp) timeout: Duration,
    /// When the wait began, and how many packets the peer's process had received by then.
    since: Option<(Instant, u64)>,
    /// The alarm at which the wait is checked again.
    alarm: NextCall,
    /// The carriers that have timed out and have had no space since then.
    timed_out: Vec<Weak<dyn Carrier>>,
}

impl Backpressure {
    pub(in crate::qp) const fn new() -> Self {
        Self { timeout: LOSS, since: None, alarm: NextCall::new(), timed_out: Vec::new() }
    }

    /// Ends the wait, because a request or a part of a request was sent.
    pub(in crate::qp) fn begin(&mut self) {
        self.since = None;
    }

    /// Clears the whole state except a pending alarm.
    pub(in crate::qp) fn clear(&mut self) {
        self.since = None;
        self.timed_out.clear();
    }

    /// Sends a packet. If the carrier is full, the QP is called once there is space, unless the carrier has timed out.
    pub(in crate::qp) fn put(
        &mut self,
        pair: &QueuePair,
        carrier: &Arc<dyn Carrier>,
        packet: &Packet,
        payload: Payload<'_>,
    ) -> Result<(), Stuck> {
        let Some(place) = self.place(carrier) else {
            return pair.put(carrier, packet, payload);
        };
        let put = carrier.put(packet, payload);
        if put != Err(Stuck::Full) {
            self.timed_out.swap_remove(place);
        }
        put
    }

    pub(in crate::qp) fn is_given_up(&self, carrier: &Arc<dyn Carrier>) -> bool {
        self.place(carrier).is_some()
    }

    fn place(&self, carrier: &Arc<dyn Carrier>) -> Option<usize> {
        self.timed_out.iter().position(|timed_out| is_same(timed_out, carrier))
    }

    /// Returns whether the oldest request, which is blocked, must wait longer. If so, this function sets an alarm, so
    /// that it is called again when the alarm expires. `taken` is how many packets the peer's process has received.
    pub(in crate::qp) fn waits(&mut self, pair: &QueuePair, taken: u64) -> bool {
        let now = Instant::now();
        // If the process receives packets of other QPs, it is running, and this QP must wait for its turn.
        let since = match self.since {
            Some((since, before)) if before == taken => since,
            _ => now,
        };
        self.since = Some((since, taken));
        let until = since + self.timeout;
        if until <= now {
            return false;
        }
        // If an earlier alarm is pending, the wait is checked at that time already.
        self.alarm.set(pair, until, now);
        true
    }

    /// Makes later messages to this carrier be dropped until the carrier has space again.
    pub(in crate::qp) fn give_up(&mut self, carrier: &Arc<dyn Carrier>) {
        if !self.is_given_up(carrier) {
            self.timed_out.retain(|timed_out| timed_out.strong_count() > 0);
            self.timed_out.push(Arc::downgrade(carrier));
        }
    }
}
