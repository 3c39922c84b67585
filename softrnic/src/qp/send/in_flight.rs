//! Requests in flight to another process: the oldest requests of the send queue, sent but not acknowledged.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::qp::send::backpressure::Backpressure;
use crate::qp::send::group::Unsent;
use crate::qp::send::inbox::{Arrival, is_same};
use crate::qp::send::retry;
use crate::qp::send::work::SendWork;
use crate::qp::timer::NextCall;
use crate::qp::{Attributes, QueuePair};
use crate::sys::unpoisoned;
use crate::wire::message::Request;
use crate::wire::operation::Operation;
use crate::wire::packet::psn_after;
use crate::wire::transport::Carrier;

/// Minimum time-out for a peer whose process exists, even if the process is stopped: four seconds, or the QP's own
/// time-outs if longer. If the process has ended, requests are retried, and fail after the QP's own time-outs.
const MIN_TIMEOUT: Duration = Duration::from_secs(if cfg!(miri) { 600 } else { 4 });

/// A request that was sent, or partially sent.
#[derive(Clone, Copy, Debug)]
pub(in crate::qp) struct Sent {
    pub(in crate::qp) psn: u32,
    is_read: bool,
}

/// A time-out check: its time, and the counters at its start.
#[derive(Clone, Copy, Debug)]
struct Watch {
    until: Instant,
    activity: u32,
    /// The number of packets that the peer's process had received, over all QPs.
    taken: u64,
}

/// The requests in flight. While the peer is in this process, the list is empty and costs nothing.
#[repr(C)]
#[derive(Debug)]
pub(in crate::qp) struct InFlight {
    sent: VecDeque<Sent>,
    /// How many bytes of the youngest request were sent, if it is partially sent.
    pub(in crate::qp) partial: Option<u64>,
    /// The number of requests sent at least once, including those that must be repeated.
    begun: usize,
    reads: usize,
    attempt: u32,
    carrier: Option<Weak<dyn Carrier>>,
    /// Counts packets sent and received.
    activity: u32,
    /// The next time-out check.
    watch: Option<Watch>,
    /// The activity counter of the inbox when it was last read.
    inbox_activity: u32,
    pub(in crate::qp) backpressure: Backpressure,
    pub(in crate::qp) unsent: Unsent,
    /// An empty buffer, for reuse.
    pub(in crate::qp) replies: VecDeque<Arrival>,
    alarm: NextCall,
    /// Whether the next part is blocked. The part is retried when the carrier calls, because other QPs may have waited
    /// longer.
    pub(in crate::qp) is_blocked: bool,
    /// [`MIN_TIMEOUT`], except in tests.
    pub(in crate::qp) min_timeout: Duration,
}

impl InFlight {
    /// Creates an empty list. The number of the first attempt is `attempt`; later numbers are larger.
    pub(in crate::qp) fn new(attempt: u32) -> Self {
        Self {
            sent: VecDeque::new(),
            partial: None,
            begun: 0,
            reads: 0,
            attempt,
            carrier: None,
            activity: 0,
            watch: None,
            min_timeout: MIN_TIMEOUT,
            alarm: NextCall::new(),
            is_blocked: false,
            inbox_activity: 0,
            backpressure: Backpressure::new(),
            unsent: Unsent::default(),
            replies: VecDeque::new(),
        }
    }

    pub(in crate::qp) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// The index in the send queue of the next request to send or continue.
    #[inline]
    pub(in crate::qp) fn next(&self) -> usize {
        if self.partial.is_some() { self.sent.len() - 1 } else { self.sent.len() }
    }

    pub(in crate::qp) fn begun(&self) -> usize {
        self.begun
    }

    pub(in crate::qp) fn attempt(&self) -> u32 {
        self.attempt
    }

    pub(in crate::qp) fn front(&self) -> Option<Sent> {
        self.sent.front().copied()
    }

    pub(in crate::qp) fn youngest(&self) -> Option<Sent> {
        self.sent.back().copied()
    }

    /// Whether the oldest request waits for a response with data.
    pub(in crate::qp) fn awaits_response(&self) -> bool {
        self.sent.front().is_some_and(|sent| sent.is_read)
    }

    /// Sends the packets that the carrier has gathered.
    pub(in crate::qp) fn flush(&self) {
        if let Some(carrier) = self.carrier.as_ref().and_then(Weak::upgrade) {
            carrier.flush();
        }
    }

    pub(in crate::qp) fn has(&self, psn: u32) -> bool {
        self.sent.iter().any(|sent| sent.psn == psn)
    }

    /// Whether a request must wait for earlier ones.
    pub(in crate::qp) fn holds_back(&self, work: &SendWork, attributes: &Attributes) -> bool {
        let is_full = work.operation.is_read_or_atomic() && self.reads >= usize::from(attributes.max_rd_atomic);
        is_full || work.is_fenced && self.reads > 0
    }

    /// Begins the request at [`next`](Self::next).
    pub(in crate::qp) fn begin(
        &mut self,
        pair: &QueuePair,
        work: &SendWork,
        request: &Request,
        peer: (u32, &Arc<dyn Carrier>),
    ) {
        let (number, carrier) = peer;
        let is_known = self.carrier.as_ref().is_some_and(|own| is_same(own, carrier));
        let is_read = request.operation.is_read_or_atomic();
        let has_data = matches!(request.operation, Operation::Read { .. });
        if !is_known || has_data {
            let mut inbox = unpoisoned(pair.inbox.lock());
            if !is_known {
                inbox.adopt(number, carrier);
                self.carrier = Some(Arc::downgrade(carrier));
            }
            if has_data {
                inbox.expect(request.psn, &work.pieces, request.length);
            }
        }
        self.sent.push_back(Sent { psn: request.psn, is_read });
        self.begun = self.begun.max(self.sent.len());
        self.reads += usize::from(is_read);
        self.partial = Some(0);
        self.backpressure.begin();
        self.activity = self.activity.wrapping_add(1);
        pair.sq_psn.store(psn_after(request.psn, request.packets), Ordering::Relaxed);
    }

    /// Records a sent part.
    pub(in crate::qp) fn went(&mut self) {
        self.activity = self.activity.wrapping_add(1);
        self.backpressure.begin();
    }

    /// Removes the oldest request, which is completed or failed.
    pub(in crate::qp) fn finish_oldest(&mut self) {
        self.begun -= 1;
        if let Some(sent) = self.sent.pop_front() {
            self.reads -= usize::from(sent.is_read);
            if self.sent.is_empty() {
                self.partial = None;
                self.is_blocked = false;
            }
        }
    }

    /// Moves all requests back to the state before sending, so that they can be sent again or abandoned. Late responses
    /// are ignored.
    pub(in crate::qp) fn go_back(&mut self, pair: &QueuePair) {
        if let Some(oldest) = self.sent.front() {
            pair.sq_psn.store(oldest.psn, Ordering::Relaxed);
        }
        if self.carrier.is_some() {
            self.attempt = self.attempt.wrapping_add(1);
            unpoisoned(pair.inbox.lock()).begin_attempt(self.attempt);
        }
        self.sent.clear();
        self.replies.clear();
        self.reads = 0;
        self.partial = None;
        self.is_blocked = false;
    }

    pub(in crate::qp) fn clear(&mut self, pair: &QueuePair) {
        self.go_back(pair);
        self.begun = 0;
        // A pending alarm has no effect without a watch. The next request sets its own watch.
        self.watch = None;
        self.backpressure.clear();
        self.unsent.clear();
    }

    /// Schedules a time-out check for a peer that does not respond.
    pub(in crate::qp) fn watch(&mut self, pair: &QueuePair, attributes: &Attributes) {
        if self.watch.is_some() || self.sent.is_empty() || !pair.parts.service.is_reliable() {
            return;
        }
        if let Some(time) = retry::silence_time(attributes.timeout) {
            let min_timeout = (time * (u32::from(attributes.retry_count) + 1)).max(self.min_timeout);
            // The count is read before the clock: a packet received between the two reads postpones the time-out.
            let taken = self.taken();
            let now = Instant::now();
            let until = now + min_timeout;
            self.watch = Some(Watch { until, activity: self.activity, taken });
            self.alarm.set(pair, until, now);
        }
    }

    /// Records the activity counter of the inbox.
    pub(in crate::qp) fn update_activity(&mut self, inbox_activity: u32) {
        if self.inbox_activity != inbox_activity {
            self.inbox_activity = inbox_activity;
            self.activity = self.activity.wrapping_add(1);
        }
    }

    /// Whether the peer has timed out: for the whole time-out, no packet was sent or received. While this QP is
    /// blocked, packets that the peer's process received from other QPs also prevent the time-out.
    pub(in crate::qp) fn has_timed_out(&mut self, pair: &QueuePair, attributes: &Attributes) -> bool {
        let Some(Watch { until, activity, taken }) = self.watch else {
            return false;
        };
        let now = Instant::now();
        if now < until {
            self.alarm.set(pair, until, now);
            return false;
        }
        self.watch = None;
        let is_others_turn = self.is_blocked && taken != self.taken();
        if !self.sent.is_empty() && activity == self.activity && !is_others_turn {
            return true;
        }
        self.watch(pair, attributes);
        false
    }

    /// The number of packets that the peer's process has received, over all QPs.
    fn taken(&self) -> u64 {
        self.carrier.as_ref().and_then(Weak::upgrade).map_or(0, |carrier| carrier.taken())
    }
}
