//! The length of a run: how much is measured per size.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use stride_run::Amount;

use super::BANDWIDTH_MESSAGES;

/// How much is measured per size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunLength {
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
        #[serde(with = "seconds", rename = "time_seconds")]
        time: Duration,
        /// The time of the warm-up.
        #[serde(with = "seconds", rename = "warm_up_seconds")]
        warm_up: Duration,
    },
}

impl Default for RunLength {
    /// Returns the default of bandwidth tests.
    fn default() -> Self {
        Self::Messages { count: BANDWIDTH_MESSAGES, warm_up: 128 }
    }
}

impl From<RunLength> for Amount {
    fn from(length: RunLength) -> Self {
        match length {
            RunLength::Messages { count, warm_up } => Self::Messages { count, warm_up },
            RunLength::Time { time, warm_up } => Self::Time { time, warm_up },
        }
    }
}

/// Returns the default time-out.
pub(super) fn half_a_minute() -> Duration {
    Duration::from_secs(30)
}

/// Serializes a duration as a number of seconds.
pub(super) mod seconds {
    use std::time::Duration;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in crate::plan) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(time.as_secs_f64())
    }

    pub(in crate::plan) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds).map_err(|_| Error::custom(format!("{seconds} seconds")))
    }
}

/// Serializes an optional duration as a number of seconds, or null.
pub(super) mod maybe_seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Seconds(#[serde(with = "super::seconds")] Duration);

    pub(in crate::plan) fn serialize<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        time.map(Seconds).serialize(serializer)
    }

    pub(in crate::plan) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Seconds>::deserialize(deserializer)?.map(|Seconds(time)| time))
    }
}
