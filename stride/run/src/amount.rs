//! The length of a run.

use std::time::Duration;

/// How much a loop measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// A number of messages per queue pair, which follow a warm-up.
    Messages {
        /// Number of messages that are measured.
        count: u64,
        /// Number of warm-up messages.
        warm_up: u64,
    },
    /// A time, which follows a warm-up.
    Time {
        /// The time that is measured.
        time: Duration,
        /// The time of the warm-up.
        warm_up: Duration,
    },
}
