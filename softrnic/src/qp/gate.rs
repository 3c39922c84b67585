//! The gate, which changes the course of messages while the condition of the device hinders them.
//!
//! It costs nothing while it is open: [`GATED`] is a bit of the byte that each message reads anyway to see whether the
//! QP is closed, and a requester passes the gate only when it looks up its peer. While the gate is closed, it does this
//! for each request, because it forgets the peer.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use rdma_mummy_sys::ibv_wc_status;

use crate::qp::send::requester::Requester;
use crate::qp::{ALARM, CLOSED, GATED, QueuePair, Service, State};
use crate::sys::unpoisoned;

impl QueuePair {
    /// Closes or opens the gate after a change of the condition. Requests that wait continue. The caller holds no lock
    /// of a QP. A thread that holds the send queue notices the change when it unlocks the queue.
    pub(crate) fn condition_changed(&self) {
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
        self.notify(ALARM);
    }

    fn must_be_gated(&self) -> bool {
        self.parts.condition.hinders()
    }

    pub(super) fn is_gated(&self) -> bool {
        self.hindrances.load(Ordering::SeqCst) & GATED != 0
    }

    /// Whether messages of peers reach the QP.
    #[inline]
    pub(super) fn is_reached(&self) -> bool {
        match self.hindrances.load(Ordering::SeqCst) {
            0 => true,
            hindrances => hindrances & CLOSED == 0 && self.has_link(),
        }
    }

    /// Whether the port carries the messages of this QP. The messages of a connection wait in the connection instead,
    /// and are not lost.
    #[cold]
    fn has_link(&self) -> bool {
        !self.parts.condition.is_down() || self.parts.service == Service::Iwarp
    }

    /// Moves the QP to the error state because its device was removed, and flushes all requests.
    pub(crate) fn device_removed(&self) {
        {
            let mut responder = unpoisoned(self.responder.lock());
            if self.is_closed() || self.state() == State::Error {
                return;
            }
            self.fail();
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
        if pair.has_link() {
            self.open_gate();
            return ControlFlow::Continue(());
        }
        // The requests in flight were sent before.
        if next > 0 {
            return ControlFlow::Break(());
        }
        if pair.parts.service.is_reliable() {
            self.await_response(pair);
            return ControlFlow::Break(());
        }
        self.flight.unsent.clear();
        self.finish(pair, ibv_wc_status::IBV_WC_SUCCESS, 0);
        ControlFlow::Continue(())
    }
}
