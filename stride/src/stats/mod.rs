//! What the loops bring back, and what it comes to.

mod bandwidth;
mod latency;

use serde::{Deserialize, Serialize};

pub(crate) use self::bandwidth::in_pairs;
pub use self::bandwidth::{Bandwidth, Rates};
pub use self::latency::Latency;
pub(crate) use self::latency::{Tally, share};

/// What a step has measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Figures {
    /// Bytes and messages in a time.
    Bandwidth(Bandwidth),
    /// The time of a message.
    Latency(Latency),
}

/// A part of a step, told when it is over: what this side has seen done in it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// When it began, in seconds from the first message that counts.
    #[serde(rename = "start_seconds")]
    pub start: f64,
    /// When it ended.
    #[serde(rename = "end_seconds")]
    pub end: f64,
    /// What was seen.
    #[serde(flatten)]
    pub seen: Seen,
}

/// What was seen in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Seen {
    /// Messages that were done.
    Bandwidth {
        /// On all queue pairs.
        messages: u64,
    },
    /// Times of messages, in nanoseconds.
    Latency {
        /// How many.
        samples: u64,
        /// The shortest.
        #[serde(rename = "min_nanoseconds")]
        min: f64,
        /// The mean.
        #[serde(rename = "mean_nanoseconds")]
        mean: f64,
        /// The longest.
        #[serde(rename = "max_nanoseconds")]
        max: f64,
    },
}

impl Interval {
    /// The rates of messages of so many bytes; none of a latency.
    pub fn rates(&self, size: u64) -> Option<Rates> {
        match self.seen {
            Seen::Bandwidth { messages } => Some(Rates::of(messages, size, self.end - self.start)),
            Seen::Latency { .. } => None,
        }
    }
}
