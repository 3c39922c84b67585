//! The gate, which changes the course of messages while the condition of the device hinders them or a fault is set.
//!
//! It costs nothing while it is open: [`GATED`] is a bit of the byte that each message reads anyway to see whether the
//! QP is closed, and a requester passes the gate only when it looks up its peer. While the gate is closed, it does this
//! for each request, because it forgets the peer.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rdma_mummy_sys::ibv_wc_status;

use crate::qp::send::requester::Requester;
use crate::qp::send::retry::Wait;
use crate::qp::{ALARM, CLOSED, GATED, QueuePair, SendWork, Service, State};
use crate::sys::unpoisoned;
use crate::wire::message::Refusal;

/// The faults that the next messages of a QP meet.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// The status with which the next request completes, or zero.
    status: AtomicU32,
    /// The reason for which the next message of the peer is refused.
    refusal: Mutex<Option<Refusal>>,
}

impl Faults {
    fn are_set(&self) -> bool {
        self.status.load(Ordering::SeqCst) != 0 || self.refuses()
    }

    fn refuses(&self) -> bool {
        unpoisoned(self.refusal.lock()).is_some()
    }
}

impl QueuePair {
    /// Makes the next request that the QP sends complete with a status, which is not that of success.
    pub(crate) fn fail_next(&self, status: ibv_wc_status) {
        self.faults.status.store(status.0, Ordering::SeqCst);
        self.condition_changed();
    }

    /// Makes the QP refuse the next message that it receives.
    pub(crate) fn refuse_next(&self, refusal: Refusal) {
        *unpoisoned(self.faults.refusal.lock()) = Some(refusal);
        self.condition_changed();
    }

    /// Takes the reason for which the QP refuses a message that it would otherwise accept.
    #[cold]
    pub(super) fn take_refusal(&self) -> Option<Refusal> {
        if !self.is_gated() || self.is_closed() || !self.has_link() {
            return None;
        }
        let refusal = unpoisoned(self.faults.refusal.lock()).take();
        self.set_gate();
        refusal
    }

    /// Closes or opens the gate after a change of the condition. Requests that wait continue. The caller holds no lock
    /// of a QP. A thread that holds the send queue notices the change when it unlocks the queue.
    pub(crate) fn condition_changed(&self) {
        self.set_gate();
        self.notify(ALARM);
    }

    fn set_gate(&self) {
        loop {
            let is_gated = self.must_be_gated();
            if is_gated {
                self.hindrances.fetch_or(GATED, Ordering::SeqCst);
            } else {
                self.hindrances.fetch_and(!GATED, Ordering::SeqCst);
            }
            // Another thread may change the condition meanwhile.
            if is_gated == self.must_be_gated() {
                break;
            }
        }
    }

    fn must_be_gated(&self) -> bool {
        self.parts.condition.hinders() || self.faults.are_set()
    }

    pub(super) fn is_gated(&self) -> bool {
        self.hindrances.load(Ordering::SeqCst) & GATED != 0
    }

    /// Whether messages of peers reach the QP.
    #[inline]
    pub(super) fn is_reached(&self) -> bool {
        match self.hindrances.load(Ordering::SeqCst) {
            0 => true,
            hindrances => hindrances & CLOSED == 0 && self.has_link() && !self.faults.refuses(),
        }
    }

    /// Whether the port carries the messages of this QP. The messages of a connection wait in the connection instead,
    /// and are not lost.
    #[cold]
    fn has_link(&self) -> bool {
        !self.parts.condition.is_down() || self.parts.service == Service::Iwarp
    }

    /// Moves the QP to the error state because of an error of the device, and flushes all requests. With `raises_event`,
    /// raises `IBV_EVENT_QP_FATAL`.
    pub(crate) fn end_by_fault(&self, raises_event: bool) {
        {
            let mut responder = unpoisoned(self.responder.lock());
            if self.is_closed() || self.state() == State::Error {
                return;
            }
            if raises_event {
                self.break_down();
            } else {
                self.fail();
            }
            responder.end(self);
        }
        self.run_requester();
    }
}

impl Requester {
    /// Decides about the request at the index `next`, which has reached the closed gate. Returns whether the requester
    /// goes on with its requests.
    #[cold]
    pub(super) fn pass_gate(&mut self, pair: &QueuePair, next: usize) -> ControlFlow<()> {
        let status = ibv_wc_status(pair.faults.status.load(Ordering::SeqCst));
        if status != ibv_wc_status::IBV_WC_SUCCESS {
            // The failure is reported only after the requests in flight have completed.
            if next > 0 {
                return ControlFlow::Break(());
            }
            pair.faults.status.store(0, Ordering::SeqCst);
            pair.set_gate();
            self.fail(pair, status);
            return ControlFlow::Continue(());
        }
        if pair.has_link() {
            // The rest of a message follows at once.
            let is_late = !pair.parts.condition.is_slow() || self.flight.partial.is_some() || self.departs(pair, next);
            if is_late {
                self.open_gate();
            }
            return if is_late { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        }
        // The requests in flight were sent before.
        if next > 0 {
            return ControlFlow::Break(());
        }
        if pair.parts.service.is_reliable() {
            // A connection keeps the first parts of a message, and repeats them itself.
            if self.flight.is_empty() || !pair.route.is_connection() {
                self.await_response(pair);
            }
            return ControlFlow::Break(());
        }
        self.flight.unsent.clear();
        self.finish(pair, ibv_wc_status::IBV_WC_SUCCESS, 0);
        ControlFlow::Continue(())
    }

    /// Reckons the times of requests anew if the speed of the device has changed.
    pub(super) fn follow_speed(&mut self, pair: &QueuePair) {
        let changes = pair.parts.condition.speed_changes();
        if self.speed_changes != changes {
            self.speed_changes = changes;
            self.departures.clear();
            if matches!(self.wait, Wait::Departure(_)) {
                self.wait = Wait::No;
            }
        }
    }

    /// Whether a slow device sends the request at the index `next` now. The delay of a request begins when it is posted,
    /// so the delays of several requests overlap.
    fn departs(&mut self, pair: &QueuePair, next: usize) -> bool {
        let Self { ring, flight, attributes, departures, .. } = self;
        if next > 0 && ring.get(next).is_some_and(|work| flight.holds_back(work, attributes)) {
            return false;
        }
        let now = Instant::now();
        for index in next + departures.len()..ring.len() {
            let length = ring.get(index).map_or(0, SendWork::length);
            departures.push_back(now + pair.parts.condition.departure(length));
        }
        let until = departures.front().copied().unwrap_or(now);
        // A retry that was due stays so, and is not counted again.
        self.wait = Wait::Departure(until);
        if until > now {
            self.alarm.set(pair, until, now);
            return false;
        }
        self.departures.pop_front();
        true
    }
}
