//! Errors of draining a queue pair.

use std::mem::ManuallyDrop;
use std::{error, fmt};

use super::ResetReason;
use crate::ibverbs::queue_pair::{ModifyQueuePairError, Pair};

/// The error of [`Pair::drain`].
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum DrainError {
    /// A completion queue of the queue pair is missing. The queue pair is unchanged.
    QueueMissing {
        /// `sends` or `receives`.
        which: &'static str,
    },
    /// The send queue and the receive queue belong to two queue pairs. Both queue pairs are unchanged.
    MixedQueues,
    /// The queue pair could be neither flushed nor reset, so the device may still use the buffers of its requests.
    Stuck {
        /// The reason why it was not flushed.
        reason: ResetReason,
        /// The error of the reset.
        source: ModifyQueuePairError,
    },
}

crate::error::debug_is_text!(DrainError);

impl fmt::Display for DrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueueMissing { which } => write!(
                f,
                "the completion queue of the {which} is missing; pass all completion queues of the queue pair"
            ),
            Self::MixedQueues => {
                f.write_str("the send queue and the receive queue belong to two queue pairs; swap them back")
            }
            Self::Stuck { reason, source } => {
                write!(
                    f,
                    "the queue pair could be neither flushed ({reason}) nor reset ({source}); keep its buffers, \
                    which may still be in use"
                )
            }
        }
    }
}

// The text of this error includes the texts of the inner errors, so there is no source.
impl error::Error for DrainError {}

impl fmt::Display for ResetReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("the time limit expired"),
            Self::Modify(error) | Self::Poll(error) => error.fmt(f),
            Self::Post(error) => error.fmt(f),
            Self::Unmarked => f.write_str("the end of a queue cannot be marked"),
        }
    }
}

/// The error of [`Pair::tear_down`]. It contains the queue pair and the buffers. Dropping the error leaks the buffers,
/// because the device may still use them.
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

    /// Returns the error of draining.
    pub fn drain_error(&self) -> &DrainError {
        &self.0.source
    }

    /// Returns the queue pair and the buffers. The buffers must not be dropped before the requests of the queue pair
    /// have ended.
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
