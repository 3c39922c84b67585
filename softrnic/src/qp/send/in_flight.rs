//! Requests in flight to another process. They are the oldest requests of the send queue, which were sent but not
//! acknowledged.

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

/// The minimum time-out for a peer whose process exists, even if the process is stopped. If the QP's own time-outs
/// together are longer, they apply instead. If the process has ended, requests are retried and fail after the QP's own
/// time-outs.
const MIN_TIMEOUT: Duration = Duration::from_secs(if cfg!(miri) { 600 } else { 4 });

/// A request of which at least one part was sent.
#[derive(Clone, Copy, Debug)]
pub(in crate::qp) struct Sent {
    pub(in crate::qp) psn: u32,
    is_read: bool,
    /// Whether the request has only changed keys, so that no response arrives for it. The oldest request is never such
    /// a request.
    is_local: bool,
}

/// A time-out check: when it happens, and the values of the counters when it was scheduled.
#[derive(Clone, Copy, Debug)]
struct Watch {
    until: Instant,
    activity: u32,
    /// See [`Carrier::taken`].
    taken: u64,
}

/// The requests in flight. If the peer is in this process, the list is always empty and costs nothing.
#[repr(C)]
#[derive(Debug)]
pub(in crate::qp) struct InFlight {
    sent: VecDeque<Sent>,
    /// How many bytes of the youngest request were sent, if only a part of it was sent.
    pub(in crate::qp) partial: Option<u64>,
    /// The number of requests that were sent at least once. Requests that must be sent again are included.
    begun: usize,
    reads: usize,
    attempt: u32,
    carrier: Option<Weak<dyn Carrier>>,
    /// A counter that changes whenever this QP has sent or received packets.
    activity: u32,
    /// The next time-out check.
    watch: Option<Watch>,
    /// The value of the inbox's activity counter when it was last read.
    inbox_activity: u32,
    pub(in crate::qp) backpressure: Backpressure,
    pub(in crate::qp) unsent: Unsent,
    /// A buffer that is empty between uses, and is kept so that its memory can be reused.
    pub(in crate::qp) replies: VecDeque<Arrival>,
    alarm: NextCall,
    /// Whether the next part could not be sent because the carrier was full. The part is sent when the carrier calls
    /// this QP, because other QPs may have waited longer.
    pub(in crate::qp) is_blocked: bool,
    /// The minimum time-out. It is [`MIN_TIMEOUT`], except in tests.
    pub(in crate::qp) min_timeout: Duration,
}

impl InFlight {
    /// Creates an empty list. `attempt` is the number of the first attempt, and later attempts have larger numbers.
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

    /// The index in the send queue of the request that is to be sent or continued next.
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

    /// Makes the carrier send the packets that it has gathered.
    pub(in crate::qp) fn flush(&self) {
        if let Some(carrier) = self.carrier.as_ref().and_then(Weak::upgrade) {
            carrier.flush();
        }
    }

    pub(in crate::qp) fn has(&self, psn: u32) -> bool {
        self.sent.iter().any(|sent| sent.psn == psn && !sent.is_local)
    }

    /// Whether a request must wait for earlier requests.
    pub(in crate::qp) fn holds_back(&self, work: &SendWork, attributes: &Attributes) -> bool {
        let is_full = work.operation.is_read_or_atomic() && self.reads >= usize::from(attributes.max_rd_atomic);
        is_full || work.is_fenced && self.reads > 0
    }

    /// Begins the request at the index [`next`](Self::next).
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
        self.sent.push_back(Sent { psn: request.psn, is_read, is_local: false });
        self.begun = self.begun.max(self.sent.len());
        self.reads += usize::from(is_read);
        self.partial = Some(0);
        self.backpressure.begin();
        self.activity = self.activity.wrapping_add(1);
        pair.sq_psn.store(psn_after(request.psn, request.packets), Ordering::Relaxed);
    }

    /// Whether the request at the index [`next`](Self::next) has begun before, and is repeated because an earlier
    /// request was sent again.
    pub(in crate::qp) fn has_begun_next(&self) -> bool {
        self.next() < self.begun
    }

    /// Adds a request that has changed keys, which completes after the requests in flight.
    pub(in crate::qp) fn begin_local(&mut self) {
        self.sent.push_back(Sent { psn: 0, is_read: false, is_local: true });
        self.begun = self.begun.max(self.sent.len());
    }

    /// Whether the oldest request waits for no response.
    pub(in crate::qp) fn is_oldest_local(&self) -> bool {
        self.sent.front().is_some_and(|sent| sent.is_local)
    }

    /// Records that a part was sent.
    pub(in crate::qp) fn went(&mut self) {
        self.activity = self.activity.wrapping_add(1);
        self.backpressure.begin();
    }

    /// Removes the oldest request, which has completed or failed.
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

    /// Returns all requests to the state in which they were before they were sent, so that they can be sent again or
    /// abandoned. Responses that still arrive are then ignored.
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
        // If there is no watch, a pending alarm has no effect. The next request sets a watch of its own.
        self.watch = None;
        self.backpressure.clear();
        self.unsent.clear();
    }

    /// Schedules a check of whether the peer responds in time.
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
            self.watch = Some(Watch { until, activity: self.activity_of_peer(pair), taken });
            self.alarm.set(pair, until, now);
        }
    }

    /// Counts one activity if the activity counter of the inbox has changed since the last call.
    pub(in crate::qp) fn update_activity(&mut self, inbox_activity: u32) {
        if self.inbox_activity != inbox_activity {
            self.inbox_activity = inbox_activity;
            self.activity = self.activity.wrapping_add(1);
        }
    }

    /// The counter that shows that the peer exists. A connection takes packets whether it does or not.
    fn activity_of_peer(&self, pair: &QueuePair) -> u32 {
        if pair.route.is_connection() { self.inbox_activity } else { self.activity }
    }

    /// Whether the peer has timed out, which means that this QP has sent and received no packet during the whole
    /// time-out. While this QP is blocked by a full carrier, packets that the peer's process receives from other QPs
    /// also prevent the time-out. On a connection, only packets that the peer acknowledges or sends prevent it.
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
        let has_taken = taken != self.taken() && (self.is_blocked || pair.route.is_connection());
        if !self.sent.is_empty() && activity == self.activity_of_peer(pair) && !has_taken {
            return true;
        }
        self.watch(pair, attributes);
        false
    }

    /// See [`Carrier::taken`].
    fn taken(&self) -> u64 {
        self.carrier.as_ref().and_then(Weak::upgrade).map_or(0, |carrier| carrier.taken())
    }
}
