//! The requester, which executes the requests of the send queue in order. A request to a peer in this process completes
//! before the next one begins. Several requests to another process can be in flight.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rdma_mummy_sys::{ibv_wc_opcode, ibv_wc_status};

use crate::cq::{Completion, Slots};
use crate::qp::send::attempt::{Peer, attempt};
use crate::qp::send::in_flight::InFlight;
use crate::qp::send::outcome::Outcome;
use crate::qp::send::retry::{self, Wait};
use crate::qp::send::ring::Ring;
use crate::qp::send::work::SendWork;
use crate::qp::timer::NextCall;
use crate::qp::{Attributes, PairEvent, QueuePair, State};
use crate::sys::errno::Errno;
use crate::sys::unpoisoned;
use crate::wire::operation::Operation;

/// The send queue, and the state of the requests in it.
#[repr(C)]
#[derive(Debug)]
pub(in crate::qp) struct Requester {
    pub(in crate::qp) ring: Ring,
    /// The number of used slots. A move to RESET replaces the counter, because earlier completions may still decrement
    /// the old one.
    used_slots: Arc<AtomicU32>,
    pub(in crate::qp) wait: Wait,
    /// The number of requests that have finished without a completion since the last completion.
    unreported: u32,
    silences_left: u8,
    not_ready_left: u8,
    has_reported_drained: bool,
    pub(in crate::qp) attributes: Attributes,
    peer: Peer,
    pub(in crate::qp) flight: InFlight,
    /// The alarm that is set for the end of `wait`.
    pub(in crate::qp) alarm: NextCall,
    /// When a slow device sends the requests from the one at the index [`InFlight::next`] on.
    pub(in crate::qp) departures: VecDeque<Instant>,
    /// How often the speed of the device had changed when they were reckoned.
    pub(in crate::qp) speed_changes: u64,
}

impl Requester {
    /// Creates a requester; `attempt` is the number of the first attempt.
    pub(in crate::qp) fn new(attempt: u32) -> Self {
        Self {
            ring: Ring::default(),
            used_slots: Arc::default(),
            unreported: 0,
            attributes: Attributes::new(),
            wait: Wait::No,
            alarm: NextCall::new(),
            flight: InFlight::new(attempt),
            silences_left: 0,
            not_ready_left: 0,
            has_reported_drained: false,
            peer: Peer::default(),
            departures: VecDeque::new(),
            speed_changes: 0,
        }
    }

    /// Adds a request. `pushed` is the number of requests that were added before and are not yet counted as used slots.
    pub(in crate::qp) fn push(&mut self, pushed: u32, max: u32) -> Result<&mut SendWork, Errno> {
        let used = self.used_slots.load(Ordering::Acquire).saturating_add(pushed);
        if used >= max { Err(Errno::NO_MEMORY) } else { Ok(self.ring.push()) }
    }

    pub(in crate::qp) fn take_back(&mut self, count: u32) {
        self.ring.truncate(count as usize);
    }

    /// Counts the slots of the requests that were added as used.
    pub(in crate::qp) fn commit(&mut self, pushed: u32) {
        self.used_slots.fetch_add(pushed, Ordering::Relaxed);
    }

    /// Prefetches the peer of the last message into the cache, because the next message probably goes to the same peer.
    #[inline]
    pub(in crate::qp) fn prefetch_peer(&self) {
        self.peer.prefetch();
    }

    /// Makes the next request look up its peer.
    pub(in crate::qp) fn forget_peer(&mut self) {
        self.peer = Peer::default();
    }

    /// Lets the next request pass the gate.
    pub(in crate::qp) fn open_gate(&mut self) {
        self.peer.passes_gate = true;
    }

    pub(in crate::qp) fn state_changed(&mut self) {
        self.has_reported_drained = false;
    }

    /// Clears the send queue when the QP is reset or closed.
    pub(in crate::qp) fn forget(&mut self, pair: &QueuePair) {
        self.flight.clear(pair);
        self.departures.clear();
        self.ring.clear();
        self.used_slots = Arc::default();
        self.unreported = 0;
        self.attributes = Attributes::new();
        self.wait = Wait::No;
        self.peer = Peer::default();
    }

    /// Completes all requests as flushed.
    pub(in crate::qp) fn flush(&mut self, pair: &QueuePair) {
        self.flight.clear(pair);
        self.departures.clear();
        while !self.ring.is_empty() {
            self.finish(pair, ibv_wc_status::IBV_WC_WR_FLUSH_ERR, 0);
        }
    }

    /// Executes the requests that can proceed.
    pub(in crate::qp) fn run(&mut self, pair: &QueuePair) {
        if pair.is_closed() {
            return;
        }
        loop {
            if !self.flight.is_empty() && !self.handle_responses(pair) {
                break;
            }
            let next = self.flight.next();
            match pair.state() {
                State::ReadyToSend => {}
                // In this state, requests that have begun are finished, and no further request begins.
                State::SendQueueDrain if next < self.begun() => {}
                State::SendQueueDrain => break,
                State::SendQueueError | State::Error => {
                    self.flush(pair);
                    break;
                }
                // In these states, the queue is empty, unless the program posts requests and modifies the QP at the
                // same time.
                State::Reset | State::Init | State::ReadyToReceive => break,
            }
            if next >= self.ring.len() || self.flight.is_empty() && !self.is_due(pair) {
                break;
            }
            // A response does not mean that the carrier has space. When it has, it calls this QP.
            if self.flight.is_blocked {
                break;
            }
            match self.execute(pair, next) {
                Outcome::Done { length } => self.finish(pair, ibv_wc_status::IBV_WC_SUCCESS, length),
                // The failure is reported only after the requests in flight have completed.
                Outcome::Failed(_) if next > 0 => break,
                Outcome::Failed(status) => self.fail(pair, status),
                Outcome::NotReady { timer } => {
                    self.await_receive(pair, timer);
                    break;
                }
                Outcome::Silence => {
                    self.await_response(pair);
                    break;
                }
                Outcome::Sent => self.wait = Wait::No,
                Outcome::Stuck => {
                    self.flight.is_blocked = !self.flight.is_empty();
                    self.wait = if self.flight.unsent.has_begun() { Wait::Space } else { Wait::No };
                    break;
                }
                Outcome::Gated => {
                    if self.pass_gate(pair, next).is_break() {
                        break;
                    }
                }
                Outcome::Later => break,
            }
        }
        if !self.flight.is_empty() {
            self.flight.flush();
            self.flight.watch(pair, &self.attributes);
        }
        self.report_drain(pair);
    }

    /// The number of requests that have begun and are not finished.
    fn begun(&self) -> usize {
        self.flight.begun().max(usize::from(self.wait != Wait::No))
    }

    /// Reports that the send queue has drained. The event is raised only if the program has requested it
    /// (`en_sqd_async_notify`), as the manual page states. The kernel's soft-RoCE always raises this event.
    fn report_drain(&mut self, pair: &QueuePair) {
        let is_draining = pair.state() == State::SendQueueDrain;
        let has_begun = self.begun() > 0;
        pair.is_draining.store(is_draining && has_begun, Ordering::Release);
        if is_draining && !has_begun && self.attributes.drain_notify && !self.has_reported_drained {
            self.has_reported_drained = true;
            pair.parts.events.happened(PairEvent::SendQueueDrained);
        }
    }

    /// Returns whether the oldest request should be sent now. If sending it is a retry after a time-out, this function
    /// counts the retry.
    fn is_due(&mut self, pair: &QueuePair) -> bool {
        match self.wait {
            Wait::No => {
                self.reset_retries();
                true
            }
            Wait::Space => true,
            Wait::NotReady(until) | Wait::Departure(until) => self.is_past(pair, until),
            // On a network, the peer would detect the missing packet when the next packet arrives, and would request a
            // retransmission.
            Wait::SilenceForEver => true,
            Wait::Silence(until) => {
                if !self.is_past(pair, until) {
                    return false;
                }
                if self.silences_left == 0 {
                    self.fail(pair, ibv_wc_status::IBV_WC_RETRY_EXC_ERR);
                    return false;
                }
                self.silences_left -= 1;
                true
            }
        }
    }

    /// Returns whether the time `until` has passed. If it has not, sets an alarm.
    fn is_past(&mut self, pair: &QueuePair, until: Instant) -> bool {
        let now = Instant::now();
        let is_past = now >= until;
        if !is_past {
            self.alarm.set(pair, until, now);
        }
        is_past
    }

    /// Resets the number of retries that are left for the oldest request.
    pub(in crate::qp) fn reset_retries(&mut self) {
        self.silences_left = self.attributes.retry_count;
        self.not_ready_left = self.attributes.rnr_retry;
    }

    pub(in crate::qp) fn await_receive(&mut self, pair: &QueuePair, timer: u8) {
        // The peer has responded, so the time-outs are counted from zero again.
        self.silences_left = self.attributes.retry_count;
        if self.attributes.rnr_retry != retry::UNLIMITED {
            if self.not_ready_left == 0 {
                return self.fail(pair, ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR);
            }
            self.not_ready_left -= 1;
        }
        self.go_back(pair);
        let now = Instant::now();
        let until = now + retry::not_ready_time(timer);
        self.wait = Wait::NotReady(until);
        self.alarm.set(pair, until, now);
    }

    pub(in crate::qp) fn await_response(&mut self, pair: &QueuePair) {
        self.go_back(pair);
        self.wait = match retry::silence_time(self.attributes.timeout) {
            None => Wait::SilenceForEver,
            Some(time) => {
                let now = Instant::now();
                self.alarm.set(pair, now + time, now);
                Wait::Silence(now + time)
            }
        };
    }

    /// Marks the requests in flight as not sent, so that they are sent again.
    fn go_back(&mut self, pair: &QueuePair) {
        self.departures.clear();
        if !self.flight.is_empty() {
            self.flight.go_back(pair);
        }
    }

    /// Completes the oldest request in error, and all later ones as flushed.
    #[cold]
    pub(in crate::qp) fn fail(&mut self, pair: &QueuePair, status: ibv_wc_status) {
        if pair.parts.service.is_reliable() {
            pair.fail();
        } else {
            pair.fail_sending();
        }
        self.finish(pair, status, 0);
        self.flush(pair);
        if pair.state() == State::Error {
            unpoisoned(pair.responder.lock()).end(pair);
        }
    }

    /// Finishes the oldest request. A completion is added if the request is signaled or has failed.
    pub(in crate::qp) fn finish(&mut self, pair: &QueuePair, status: ibv_wc_status, length: u32) {
        let Some(work) = self.ring.front() else {
            return;
        };
        self.wait = Wait::No;
        if self.flight.begun() > 0 {
            self.flight.finish_oldest();
        }
        self.unreported += 1;
        let is_signaled = work.is_signaled || pair.parts.signals_all || status != ibv_wc_status::IBV_WC_SUCCESS;
        if let Some(queue) = pair.parts.send_queue.as_ref().filter(|_| is_signaled) {
            let back = std::mem::take(&mut self.unreported);
            let completion = Completion {
                wr_id: work.wr_id,
                status,
                opcode: opcode(work.operation),
                byte_len: length,
                flags: 0,
                immediate: 0,
                number: pair.number,
                source_number: 0,
                service_level: 0,
                timestamp: 0,
                wall_clock: 0,
                slots: Some(Slots { used: Arc::clone(&self.used_slots), back }),
            };
            if !queue.push(completion, false) && pair.break_down() {
                // The caller flushes the remaining requests. This thread does not hold the responder's lock: a thread
                // that holds it runs the requester only in the error state, in which `break_down` returns `false`.
                unpoisoned(pair.responder.lock()).end(pair);
            }
        }
        self.ring.pop();
    }

    /// Executes the next request, which is the oldest one that is not in flight.
    fn execute(&mut self, pair: &QueuePair, next: usize) -> Outcome {
        let Self { ring, peer, attributes, flight, .. } = self;
        let Some(work) = ring.get(next) else {
            return Outcome::Silence;
        };
        attempt(pair, work, attributes, peer, flight)
    }
}

fn opcode(operation: Operation) -> ibv_wc_opcode {
    match operation {
        Operation::Send | Operation::SendImmediate { .. } | Operation::SendInvalidate { .. } => {
            ibv_wc_opcode::IBV_WC_SEND
        }
        Operation::Write { .. } | Operation::WriteImmediate { .. } => ibv_wc_opcode::IBV_WC_RDMA_WRITE,
        Operation::Read { .. } => ibv_wc_opcode::IBV_WC_RDMA_READ,
        Operation::CompareSwap { .. } => ibv_wc_opcode::IBV_WC_COMP_SWAP,
        Operation::FetchAdd { .. } => ibv_wc_opcode::IBV_WC_FETCH_ADD,
        Operation::AtomicWrite { .. } => ibv_wc_opcode::IBV_WC_ATOMIC_WRITE,
        Operation::Flush { .. } => ibv_wc_opcode::IBV_WC_FLUSH,
        Operation::LocalInvalidate { .. } => ibv_wc_opcode::IBV_WC_LOCAL_INV,
        Operation::Bind => ibv_wc_opcode::IBV_WC_BIND_MW,
    }
}
