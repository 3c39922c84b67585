//! The requester's look at what a peer in another process has answered.

use rdma_mummy_sys::ibv_wc_status;

use crate::qp::send::attempt::{Outcome, finish_answer, local_memory, status_of};
use crate::qp::send::inbox::Arrival;
use crate::qp::send::requester::Requester;
use crate::qp::{ALARM, QueuePair, deferred_run};
use crate::sys::unpoisoned;
use crate::wire::bytes::Segments;
use crate::wire::message::Reply;

impl Requester {
    /// Takes in the answers that have come, before what is on its way is flushed or forgotten.
    pub(in crate::qp) fn settle(&mut self, pair: &QueuePair) {
        if !self.flight.is_empty() {
            self.take_in(pair);
        }
    }

    /// Takes in the answers that have come to what is on its way. `false` where nothing more is to go for now.
    pub(in crate::qp) fn take_in(&mut self, pair: &QueuePair) -> bool {
        let kinds = deferred_run::take(&pair.pending);
        if kinds == 0 {
            return true;
        }
        let is_alarm = kinds & ALARM != 0;
        let mut replies = std::mem::take(&mut self.flight.replies);
        let (is_lost, heard) = unpoisoned(pair.inbox.lock()).take(&mut replies);
        self.flight.hear(heard);
        let mut goes_on = true;
        while let Some(arrival) = replies.pop_front() {
            goes_on = self.answered(pair, arrival);
            if !goes_on {
                replies.clear();
            }
        }
        self.flight.replies = replies;
        if goes_on && is_lost && !self.flight.is_empty() && pair.parts().service.is_reliable() {
            log::debug!("queue pair {:#x}: the process of the peer is gone", pair.number());
            self.await_answer(pair);
            return false;
        }
        // The clock is looked at when the alarm rings, which is set for this: there are machines on which that is a system call.
        if goes_on && is_alarm && self.flight.is_mute(pair, &self.attributes) {
            log::debug!("queue pair {:#x}: the peer does not answer", pair.number());
            self.fail(pair, ibv_wc_status::IBV_WC_RETRY_EXC_ERR);
            return false;
        }
        if is_alarm {
            self.flight.is_in_line = false;
        }
        goes_on
    }

    /// Takes in one reply.
    fn answered(&mut self, pair: &QueuePair, arrival: Arrival) -> bool {
        let Some(oldest) = self.flight.front() else {
            return true;
        };
        if arrival.psn != oldest.psn {
            // The peer is gone, and with it its answer to the oldest.
            if arrival.reply == Some(Reply::Silence) && self.flight.has(arrival.psn) {
                self.await_answer(pair);
                return false;
            }
            log::debug!("queue pair {:#x}: an answer to packet {:#x} out of turn", pair.number(), arrival.psn);
            return true;
        }
        match arrival.reply {
            Some(Reply::Done { original }) => return self.oldest_done(pair, original),
            Some(Reply::NotReady { timer }) => self.await_receive(pair, timer),
            Some(Reply::Silence) => self.await_answer(pair),
            Some(Reply::Refused(refusal)) => self.fail(pair, status_of(refusal)),
            Some(Reply::LocalFault) => self.fail(pair, ibv_wc_status::IBV_WC_LOC_PROT_ERR),
            None => self.fail(pair, ibv_wc_status::IBV_WC_BAD_RESP_ERR),
        }
        false
    }

    fn oldest_done(&mut self, pair: &QueuePair, original: u64) -> bool {
        if self.flight.next() == 0 {
            log::debug!("queue pair {:#x}: an answer to what has not gone yet", pair.number());
            return true;
        }
        let Some(work) = self.ring.front() else {
            return true;
        };
        // Of a read the data is there already.
        let mut segments = Segments::new();
        let needs_memory = work.operation.is_atomic();
        let outcome = if needs_memory && !local_memory(pair, work, &mut segments) {
            Outcome::Failed(ibv_wc_status::IBV_WC_LOC_PROT_ERR)
        } else {
            finish_answer(work, original, &segments)
        };
        drop(segments);
        match outcome {
            Outcome::Done { length } => {
                self.finish(pair, ibv_wc_status::IBV_WC_SUCCESS, length);
                self.count_anew();
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
