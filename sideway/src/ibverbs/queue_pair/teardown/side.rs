//! One queue of a queue pair while it is drained: behind its last request stands one that marks the end.

use super::DRAIN_MARKERS;
use crate::ibverbs::completion::CompletionRecord;
use crate::ibverbs::queue_pair::{QueuePairCore, SendQueue, Service};
use crate::ibverbs::work_request::{PostError, PostErrorKind, ReceiveQueue};

/// How far the end of a queue has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The marker is to be posted: not yet, or the queue was full.
    ToPost,
    /// The marker's completion has not been seen.
    Posted,
    /// The queue is empty, or there is none.
    Seen,
    /// No marker can stand in the queue.
    Unmarkable,
}

impl End {
    /// The end of a send queue before anything was done.
    pub(super) fn of_sends(core: &QueuePairCore) -> Self {
        if core.holds_sends() { Self::ToPost } else { Self::Seen }
    }

    /// The end of a receive queue before anything was done.
    pub(super) fn of_receives(queue: &ReceiveQueue) -> Self {
        match (queue.holds_requests(), queue.shares()) {
            (true, _) => Self::ToPost,
            (false, true) => Self::Unmarkable,
            (false, false) => Self::Seen,
        }
    }

    /// Posts the marker of a send queue where that is still to be done.
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

    /// The same for a receive queue.
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
            // Room comes with the completions. Until then a try is harmless, also on mlx5, which writes the data of a
            // request too many over that of the one before it (`manual::quirks`): the queue pair is in the error state,
            // where requests are flushed and not carried out, and the number that its completion will have stands
            // elsewhere and stays.
            Err(error) if error.kind() == PostErrorKind::NotEnoughResources => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether nothing is to be waited for any more.
    pub(super) fn is_over(self) -> bool {
        matches!(self, Self::Seen | Self::Unmarkable)
    }
}

/// Takes a completion for the marker that it is of; tells whether it is one.
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
