//! What is sent, how much of it, in which direction, and how fast; and what is observed of it.

use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::run_length::{half_a_minute, maybe_seconds, seconds};
use super::{Measure, Operation, RunLength, values};

/// What is sent, how much of it, in which direction, and how fast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Args)]
#[command(next_help_heading = "Messages")]
pub struct Workload {
    /// What is done.
    #[arg(skip = Operation::Write)]
    pub operation: Operation,
    /// What of it is measured.
    #[arg(skip = Measure::Bandwidth)]
    pub measure: Measure,
    /// Bytes of a message, one step for each.
    #[serde(rename = "sizes_bytes")]
    #[arg(skip)]
    pub sizes: Vec<u64>,
    /// How much of it, at each size.
    #[arg(skip)]
    pub amount: RunLength,
    /// The user ends it, with all that was measured so far; the amount is the longest time then.
    #[serde(default)]
    #[arg(skip)]
    pub is_endless: bool,
    /// Which side sends.
    #[serde(flatten)]
    #[arg(skip)]
    pub direction: Direction,
    /// Compares what lies in memory after each size with what was sent, every byte of it: of each place of a message the last that
    /// came there (up to 64 places on a queue pair, one for receives and for messages above 2 KiB); of --atomic fadd the
    /// sum, and of --atomic cswap, each of which exchanges what the one before it has left, what is left and what the last has brought
    /// back.
    #[arg(long = "validate")]
    pub is_validated: bool,
    /// Gigabits a second that the senders of a side do not exceed.
    #[serde(rename = "rate_limit_gigabits_per_second")]
    #[arg(id = "rate_limit_gigabits_per_second", long = "rate-limit", value_name = "GBPS", value_parser = values::positive)]
    pub rate_limit: Option<f64>,
    /// With --rate-limit: so many messages of a thread go out at once, and then none until as many are due [default: 1].
    #[serde(default)]
    #[arg(long, value_name = "N", value_parser = values::count)]
    pub burst_size: Option<u32>,
    /// With lat: the pause between a message and the next, which counts for neither; microseconds, or with a unit, such as 1ms.
    #[serde(rename = "gap_seconds", with = "maybe_seconds", default)]
    #[arg(id = "gap_seconds", long = "gap", value_name = "TIME", value_parser = values::microseconds, visible_alias = "latency-gap")]
    pub gap: Option<Duration>,
}

/// Which side sends, reads or changes the other's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Flags", into = "Flags")]
pub enum Direction {
    /// The client.
    #[default]
    Forward,
    /// The server, and the client only answers.
    Reversed,
    /// Both.
    Both,
}

/// A direction as JSON has it.
#[derive(Serialize, Deserialize)]
struct Flags {
    is_bidirectional: bool,
    #[serde(default)]
    is_reversed: bool,
}

impl From<Direction> for Flags {
    fn from(direction: Direction) -> Self {
        Self { is_bidirectional: direction == Direction::Both, is_reversed: direction == Direction::Reversed }
    }
}

impl TryFrom<Flags> for Direction {
    type Error = &'static str;

    fn try_from(flags: Flags) -> Result<Self, Self::Error> {
        match (flags.is_bidirectional, flags.is_reversed) {
            (false, false) => Ok(Self::Forward),
            (false, true) => Ok(Self::Reversed),
            (true, false) => Ok(Self::Both),
            (true, true) => Err("--reversed has the server send alone, and --bidirectional both: give one of them"),
        }
    }
}

impl Direction {
    /// Whether both sides send.
    pub fn is_both(self) -> bool {
        self == Self::Both
    }

    /// Whether the server sends alone.
    pub fn is_reversed(self) -> bool {
        self == Self::Reversed
    }
}

impl Default for Workload {
    /// Writes of 64 KiB, 5000 of them.
    fn default() -> Self {
        Self {
            operation: Operation::Write,
            measure: Measure::Bandwidth,
            sizes: vec![64 << 10],
            amount: RunLength::default(),
            is_endless: false,
            direction: Direction::Forward,
            is_validated: false,
            rate_limit: None,
            burst_size: None,
            gap: None,
        }
    }
}

/// What is observed while messages are sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Args)]
#[command(next_help_heading = "Results")]
pub struct Sampling {
    /// A message of a latency that may have been lost is waited for this long.
    #[serde(rename = "timeout_seconds", with = "seconds", default = "half_a_minute")]
    #[arg(skip = half_a_minute())]
    pub timeout: Duration,
    /// Length of the intervals of which the slowest, middle and fastest are told. Each is told as it is over, where it is of 100ms or more,
    /// on a terminal, with --json-stream and with -D forever; of lat that alone [default: by the length of the run and its completions].
    #[serde(rename = "interval_seconds", with = "maybe_seconds")]
    #[arg(id = "interval_seconds", long = "interval", value_name = "SECONDS", value_parser = values::duration)]
    pub interval: Option<Duration>,
    /// Tells by how much these counters of the devices' ports change at each size, on both sides: names of files in counters and
    /// hw_counters of the port, with or without the folder's name, or all for those that change. As the kernel has them:
    /// port_xmit_data and port_rcv_data are of four bytes.
    #[serde(default)]
    #[arg(short = 'W', long, value_name = "LIST", value_delimiter = ',', visible_alias = "report-counters")]
    pub counters: Vec<String>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { timeout: half_a_minute(), interval: None, counters: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direction_is_two_flags_in_json() {
        for (direction, json) in [
            (Direction::Forward, r#"{"is_bidirectional":false,"is_reversed":false}"#),
            (Direction::Reversed, r#"{"is_bidirectional":false,"is_reversed":true}"#),
            (Direction::Both, r#"{"is_bidirectional":true,"is_reversed":false}"#),
        ] {
            assert_eq!(serde_json::to_string(&direction).unwrap(), json);
            assert_eq!(serde_json::from_str::<Direction>(json).unwrap(), direction);
        }
        let both = serde_json::from_str::<Direction>(r#"{"is_bidirectional":true,"is_reversed":true}"#);
        assert!(both.unwrap_err().to_string().contains("give one of them"));
    }
}
