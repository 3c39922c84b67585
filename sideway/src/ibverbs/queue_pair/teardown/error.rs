//! Why a queue pair could not be drained.

use std::mem::ManuallyDrop;
use std::{error, fmt};

use super::ResetReason;
use crate::ibverbs::queue_pair::{ModifyQueuePairError, Pair};

/// Why [`Pair::drain`] failed.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum DrainError {
    /// A completion queue of the queue pair was not given; nothing was done.
    QueueMissing {
        /// `sends` or `receives`.
        which: &'static str,
    },
    /// The send queue and the receive queue are of two queue pairs; nothing was done.
    MixedQueues,
    /// The queue pair could neither be flushed nor reset: the device may still use the buffers of its requests.
    Stuck {
        /// Why it was not flushed.
        reason: ResetReason,
        /// Why it was not reset.
        source: ModifyQueuePairError,
    },
}

crate::error::debug_is_text!(DrainError);

impl fmt::Display for DrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueueMissing { which } => write!(
                f,
                "the completion queue of the {which} is not among the queues given: give all on which the queue pair completes"
            ),
            Self::MixedQueues => f.write_str(
                "the send queue and the receive queue are of two queue pairs, of which neither is whole: swap them back",
            ),
            Self::Stuck { reason, source } => {
                write!(
                    f,
                    "the queue pair was not flushed ({reason}) nor reset ({source}): its buffers may still be in use"
                )
            }
        }
    }
}

// The text has those of the errors inside, and so the source is theirs: none.
impl error::Error for DrainError {}

impl fmt::Display for ResetReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("the time was over"),
            Self::Modify(error) | Self::Poll(error) => error.fmt(f),
            Self::Post(error) => error.fmt(f),
            Self::Unmarked => f.write_str("the end of a queue cannot be marked"),
        }
    }
}

/// Why [`Pair::tear_down`] failed, with what it was to tear down. Dropped, it leaks the buffers, because the device may still
/// use them.
pub struct TearDownError<S, B>(Box<Parts<S, B>>);

struct Parts<S, B> {
    source: DrainError,
    pair: Pair<S>,
    buffers: ManuallyDrop<B>,
}

impl<S, B> TearDownError<S, B> {
    pub(super) fn new(source: DrainError, pair: Pair<S>, buffers: ManuallyDrop<B>) -> Self {
        Self(Box::new(Parts { source, pair, buffers }))
    }

    /// What went wrong.
    pub fn drain_error(&self) -> &DrainError {
        &self.0.source
    }

    /// The queue pair, and the buffers, which must not go before its requests have ended.
    pub fn into_parts(self) -> (Pair<S>, ManuallyDrop<B>) {
        (self.0.pair, self.0.buffers)
    }
}

impl<S, B> fmt::Debug for TearDownError<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<S, B> fmt::Display for TearDownError<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.source.fmt(f)
    }
}

// As for DrainError.
impl<S, B> error::Error for TearDownError<S, B> {}
