//! What is on its way to a peer in another process: the oldest requests of the send queue, which went and are not answered.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::qp::send::backpressure::Backpressure;
use crate::qp::send::group::Missing;
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

/// A peer whose process lives is given at least this long to answer.
const PATIENCE: Duration = Duration::from_secs(if cfg!(miri) { 600 } else { 4 });

/// A request that went, or of which some parts did.
#[derive(Clone, Copy, Debug)]
pub(in crate::qp) struct Sent {
    pub(in crate::qp) psn: u32,
    is_read: bool,
}

/// When to look whether the peer is mute, and what was counted when that was decided.
#[derive(Clone, Copy, Debug)]
struct Watch {
    until: Instant,
    activity: u32,
    /// What the process of the peer had taken in.
    taken: u64,
}

/// The requests on their way. All is empty, and costs nothing, while peers are in this process.
#[repr(C)]
#[derive(Debug)]
pub(in crate::qp) struct InFlight {
    sent: VecDeque<Sent>,
    /// How many bytes of the youngest of `sent` went, where that is not all of it.
    pub(in crate::qp) partial: Option<u64>,
    /// How many requests have ever gone, since the oldest: those that went back count still.
    begun: usize,
    reads: usize,
    attempt: u32,
    carrier: Option<Weak<dyn Carrier>>,
    /// Counts what goes and comes.
    activity: u32,
    /// When to look whether the peer is mute.
    watch: Option<Watch>,
    /// What was counted of what came.
    heard: u32,
    pub(in crate::qp) room: Backpressure,
    pub(in crate::qp) missing: Missing,
    /// Empty, and used again.
    pub(in crate::qp) replies: VecDeque<Arrival>,
    alarm: NextCall,
    /// The next part found no room, and is tried again when it is called: others may wait who were there before.
    pub(in crate::qp) is_in_line: bool,
    /// [`PATIENCE`], but in tests.
    pub(in crate::qp) patience: Duration,
}

impl InFlight {
    /// `attempt` is the number of the first; it only grows.
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
            patience: PATIENCE,
            alarm: NextCall::new(),
            is_in_line: false,
            heard: 0,
            room: Backpressure::new(),
            missing: Missing::default(),
            replies: VecDeque::new(),
        }
    }

    pub(in crate::qp) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// The place, in the send queue, of the request that goes next, or goes on.
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

    pub(in crate::qp) fn has(&self, psn: u32) -> bool {
        self.sent.iter().any(|sent| sent.psn == psn)
    }

    /// Whether a request has to wait for those before it.
    pub(in crate::qp) fn holds_back(&self, work: &SendWork, attributes: &Attributes) -> bool {
        let is_full = work.operation.is_read_or_atomic() && self.reads >= usize::from(attributes.max_rd_atomic);
        is_full || work.is_fenced && self.reads > 0
    }

    /// The request at [`next`](Self::next) begins to go.
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
        self.room.begin();
        self.activity = self.activity.wrapping_add(1);
        pair.sq_psn.store(psn_after(request.psn, request.packets), Ordering::Relaxed);
    }

    /// A part went.
    pub(in crate::qp) fn went(&mut self) {
        self.activity = self.activity.wrapping_add(1);
        self.room.begin();
    }

    /// The oldest request is done, or has failed.
    pub(in crate::qp) fn finish_oldest(&mut self) {
        self.begun -= 1;
        if let Some(sent) = self.sent.pop_front() {
            self.reads -= usize::from(sent.is_read);
            if self.sent.is_empty() {
                self.partial = None;
                self.is_in_line = false;
            }
        }
    }

    /// Nothing of it went for good: all of it goes again, or never. Late answers find nothing.
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
        self.is_in_line = false;
    }

    /// Forgets all.
    pub(in crate::qp) fn clear(&mut self, pair: &QueuePair) {
        self.go_back(pair);
        self.begun = 0;
        // An alarm that is left of it is the next one's: that request is watched anew, by what is set then.
        self.watch = None;
        self.room.clear();
        self.missing.clear();
    }

    /// Sees to it that a peer that does not answer is found out.
    pub(in crate::qp) fn watch(&mut self, pair: &QueuePair, attributes: &Attributes) {
        if self.watch.is_some() || self.sent.is_empty() || !pair.parts.service.is_reliable() {
            return;
        }
        if let Some(time) = retry::silence_time(attributes.timeout) {
            let patience = (time * (u32::from(attributes.retry_count) + 1)).max(self.patience);
            // Counted before the clock is read: what is taken in between belongs to the time that begins.
            let taken = self.taken();
            let now = Instant::now();
            let until = now + patience;
            self.watch = Some(Watch { until, activity: self.activity, taken });
            self.alarm.set(pair, until, now);
        }
    }

    /// Takes note of what came, which `heard` counts.
    pub(in crate::qp) fn hear(&mut self, heard: u32) {
        if self.heard != heard {
            self.heard = heard;
            self.activity = self.activity.wrapping_add(1);
        }
    }

    /// Whether the peer is mute: nothing went and nothing came for as long as it is given. Of what finds no room the peer knows
    /// nothing: there its process is mute, and takes in nothing of others either.
    pub(in crate::qp) fn is_mute(&mut self, pair: &QueuePair, attributes: &Attributes) -> bool {
        let Some(Watch { until, activity, taken }) = self.watch else {
            return false;
        };
        let now = Instant::now();
        if now < until {
            self.alarm.set(pair, until, now);
            return false;
        }
        self.watch = None;
        let is_others_turn = self.is_in_line && taken != self.taken();
        if !self.sent.is_empty() && activity == self.activity && !is_others_turn {
            return true;
        }
        self.watch(pair, attributes);
        false
    }

    /// Counts what the process of the peer has taken in.
    fn taken(&self) -> u64 {
        self.carrier.as_ref().and_then(Weak::upgrade).map_or(0, |carrier| carrier.taken())
    }
}
