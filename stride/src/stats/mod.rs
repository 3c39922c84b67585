//! The figures that the measuring loops produce.

mod bandwidth;
mod latency;

use serde::{Deserialize, Serialize};

pub use self::bandwidth::{Bandwidth, Rates};
pub use self::latency::Latency;
pub(crate) use self::latency::share;

/// The figures of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Figures {
    /// Bandwidth and message rate.
    Bandwidth(Bandwidth),
    /// Latency.
    Latency(Latency),
}

/// The figures of an interval, which are reported while the step runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Start of the interval, in seconds since the first message that counts.
    #[serde(rename = "start_seconds")]
    pub start: f64,
    /// End of the interval, in seconds since the same message.
    #[serde(rename = "end_seconds")]
    pub end: f64,
    /// The figures.
    #[serde(flatten)]
    pub seen: Seen,
}

/// The figures of an interval, by kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Seen {
    /// The interval of a bandwidth test.
    Bandwidth {
        /// Number of messages on all queue pairs.
        messages: u64,
    },
    /// The interval of a latency test, with times in nanoseconds.
    Latency {
        /// Number of samples.
        samples: u64,
        /// Minimum.
        #[serde(rename = "min_nanoseconds")]
        min: f64,
        /// Mean.
        #[serde(rename = "mean_nanoseconds")]
        mean: f64,
        /// Maximum.
        #[serde(rename = "max_nanoseconds")]
        max: f64,
    },
}

impl Interval {
    /// Returns the rates for messages of `size` bytes, or `None` for latencies.
    pub fn rates(&self, size: u64) -> Option<Rates> {
        match self.seen {
            Seen::Bandwidth { messages } => Some(Rates::of(messages, size, self.end - self.start)),
            Seen::Latency { .. } => None,
        }
    }
}
