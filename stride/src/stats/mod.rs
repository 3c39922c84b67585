//! What the loops bring back, and what it comes to.

mod bandwidth;
mod interval;
mod latency;

use serde::{Deserialize, Serialize};

pub(crate) use self::bandwidth::in_pairs;
pub use self::bandwidth::{Bandwidth, Rates};
pub use self::interval::{Interval, Seen};
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
