//! The state of draining one queue. A marker request that is posted after the queue's last request marks the end of the
//! queue.

use super::DRAIN_MARKERS;
use crate::ibverbs::completion::CompletionRecord;
use crate::ibverbs::queue_pair::{QueuePairCore, SendQueue, Service};
use crate::ibverbs::work_request::{PostError, PostErrorKind, ReceiveQueue};

/// How far a queue has been drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The marker must still be posted, because posting was not tried yet or the queue was full.
    ToPost,
    /// The marker was posted, but has not completed.
    Posted,
    /// The queue is empty, or does not exist.
    Seen,
    /// The queue cannot have a marker.
    Unmarkable,
}

impl End {
    /// Returns the initial state of a send queue.
    pub(super) fn of_sends(core: &QueuePairCore) -> Self {
        if core.holds_sends() { Self::ToPost } else { Self::Seen }
    }

    /// Returns the initial state of a receive queue.
    pub(super) fn of_receives(queue: &ReceiveQueue) -> Self {
        match (queue.holds_requests(), queue.shares()) {
            (true, _) => Self::ToPost,
            (false, true) => Self::Unmarkable,
            (false, false) => Self::Seen,
        }
    }

    /// Posts the marker of a send queue, if it must still be posted.
    pub(super) fn mark_sends<S: SendQueue>(&mut self, queue: &mut S) -> Result<(), PostError> {
        if *self != Self::ToPost {
            return Ok(());
        }
        match S::Service::post_marker(queue.start_post_send(), DRAIN_MARKERS[0]) {
            None => {
                *self = Self::Unmarkable;
                Ok(())
            }
            Some(posted) => self.posted(posted),
        }
    }

    /// Posts the marker of a receive queue, if it must still be posted.
    pub(super) fn mark_receives(&mut self, queue: &mut ReceiveQueue) -> Result<(), PostError> {
        if *self != Self::ToPost {
            return Ok(());
        }
        let mut guard = queue.start_post_recv();
        guard.construct_wr(DRAIN_MARKERS[1]).setup_no_data();
        let posted = guard.post();
        self.posted(posted)
    }

    fn posted(&mut self, posted: Result<(), PostError>) -> Result<(), PostError> {
        match posted {
            Ok(()) => *self = Self::Posted,
            // The queue is full. Posting is attempted again after completions have freed entries. On a full queue, mlx5
            // overwrites the data of the previous request (`manual::quirks`). This is harmless here: in the Error
            // state, requests are flushed and not executed, and the request number for the completion is stored
            // elsewhere.
            Err(error) if error.kind() == PostErrorKind::NotEnoughResources => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether there is nothing left to wait for.
    pub(super) fn is_over(self) -> bool {
        matches!(self, Self::Seen | Self::Unmarkable)
    }
}

/// Returns whether the completion is that of a marker. If it is, records that the marker has completed.
pub(super) fn is_marker(core: &QueuePairCore, record: &CompletionRecord, ends: &mut [End; 2]) -> bool {
    if record.qp_num != core.qp_number() {
        return false;
    }
    match DRAIN_MARKERS.iter().position(|&marker| marker == record.wr_id) {
        Some(side) => {
            if ends[side] == End::Posted {
                ends[side] = End::Seen;
            }
            true
        }
        None => false,
    }
}
