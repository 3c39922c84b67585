//! Why a poll gave no completion.

use std::{error, fmt};

use crate::error::VerbError;

/// Why [`start_poll`](super::ExtendedCompletionQueue::start_poll) gave no poller.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PollCompletionQueueError {
    /// Nothing has completed since the last poll.
    CompletionQueueEmpty,
    /// The queue is broken: it overran, or the device is gone.
    Verb(VerbError),
}

impl fmt::Display for PollCompletionQueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CompletionQueueEmpty => f.write_str("the completion queue is empty"),
            Self::Verb(error) => error.fmt(f),
        }
    }
}

// The text is that of the error inside, and so is its source: none.
impl error::Error for PollCompletionQueueError {}

impl From<VerbError> for PollCompletionQueueError {
    fn from(error: VerbError) -> Self {
        Self::Verb(error)
    }
}
