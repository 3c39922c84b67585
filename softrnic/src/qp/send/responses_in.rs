//! How the requester handles the responses of a peer in another process.

use std::sync::atomic::Ordering;

use rdma_mummy_sys::ibv_wc_status;

use crate::qp::send::attempt::{finish_response, local_memory};
use crate::qp::send::inbox::Arrival;
use crate::qp::send::outcome::{Outcome, status_of};
use crate::qp::send::requester::Requester;
use crate::qp::{ALARM, QueuePair, deferred_run};
use crate::sys::unpoisoned;
use crate::wire::bytes::Segments;
use crate::wire::message::Reply;

impl Requester {
    /// Handles the responses that have arrived, before the requests in flight are flushed or cleared.
    pub(in crate::qp) fn settle(&mut self, pair: &QueuePair) {
        if !self.flight.is_empty() {
            self.handle_responses(pair);
        }
    }

    /// Handles the responses that have arrived for requests in flight. Returns `false` if no request can be sent now.
    pub(in crate::qp) fn handle_responses(&mut self, pair: &QueuePair) -> bool {
        let kinds = deferred_run::take(&pair.pending);
        if kinds == 0 {
            return true;
        }
        let is_alarm = kinds & ALARM != 0;
        let mut replies = std::mem::take(&mut self.flight.replies);
        let (is_lost, activity) = {
            let mut inbox = unpoisoned(pair.inbox.lock());
            pair.is_handling.store(true, Ordering::Relaxed);
            inbox.take(&mut replies)
        };
        self.flight.update_activity(activity);
        let mut goes_on = true;
        while let Some(arrival) = replies.pop_front() {
            goes_on = self.handle_reply(pair, arrival);
            if !goes_on {
                replies.clear();
            }
        }
        self.flight.replies = replies;
        pair.is_handling.store(false, Ordering::Release);
        if goes_on && is_lost && !self.flight.is_empty() && pair.parts().service.is_reliable() {
            rdma_mummy_sys::log!(debug, "QP {:#x}: the peer's process has ended", pair.number());
            self.await_response(pair);
            return false;
        }
        // The clock is read only on an alarm, because on some machines reading the clock is a system call.
        if goes_on && is_alarm && self.flight.has_timed_out(pair, &self.attributes) {
            rdma_mummy_sys::log!(debug, "QP {:#x} failed: the peer does not respond", pair.number());
            self.fail(pair, ibv_wc_status::IBV_WC_RETRY_EXC_ERR);
            return false;
        }
        if is_alarm {
            self.flight.is_blocked = false;
        }
        goes_on
    }

    fn handle_reply(&mut self, pair: &QueuePair, arrival: Arrival) -> bool {
        let Some(oldest) = self.flight.front() else {
            return true;
        };
        if arrival.psn != oldest.psn {
            // The peer's QP no longer accepts messages, and will send no response to the oldest request.
            if arrival.reply == Reply::Silence && self.flight.has(arrival.psn) {
                self.await_response(pair);
                return false;
            }
            rdma_mummy_sys::log!(
                debug,
                "QP {:#x}: ignored a response to PSN {:#x}, out of order",
                pair.number(),
                arrival.psn
            );
            return true;
        }
        match arrival.reply {
            Reply::Done { original } => return self.oldest_done(pair, original),
            Reply::NotReady { timer } => self.await_receive(pair, timer),
            Reply::Silence => self.await_response(pair),
            Reply::Refused(refusal) => self.fail(pair, status_of(refusal)),
            Reply::LocalFault => self.fail(pair, ibv_wc_status::IBV_WC_LOC_PROT_ERR),
            Reply::BadResponse => self.fail(pair, ibv_wc_status::IBV_WC_BAD_RESP_ERR),
        }
        false
    }

    fn oldest_done(&mut self, pair: &QueuePair, original: u64) -> bool {
        if self.flight.next() == 0 {
            rdma_mummy_sys::log!(debug, "QP {:#x}: ignored a response to a request that was not sent", pair.number());
            return true;
        }
        let Some(work) = self.ring.front() else {
            return true;
        };
        // The data of a read was copied when it arrived.
        let mut segments = Segments::new();
        let needs_memory = work.operation.is_atomic();
        let outcome = if needs_memory && !local_memory(pair, work, &mut segments) {
            Outcome::Failed(ibv_wc_status::IBV_WC_LOC_PROT_ERR)
        } else {
            finish_response(work, original, &segments)
        };
        drop(segments);
        match outcome {
            Outcome::Done { length } => {
                self.finish(pair, ibv_wc_status::IBV_WC_SUCCESS, length);
                while self.flight.is_oldest_local() {
                    self.finish(pair, ibv_wc_status::IBV_WC_SUCCESS, 0);
                }
                self.reset_retries();
                true
            }
            Outcome::Failed(status) => {
                self.fail(pair, status);
                false
            }
            _ => true,
        }
    }
}
