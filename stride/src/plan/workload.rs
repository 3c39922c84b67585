//! The workload of a test: what is sent, how much, in which direction and how fast. The module also contains what is
//! observed during the test.

use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::run_length::{half_a_minute, maybe_seconds, seconds};
use super::{Measure, Operation, RunLength, values};

/// What is sent, how much of it, in which direction, and how fast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Args)]
#[command(next_help_heading = "Messages")]
pub struct Workload {
    /// The operation.
    #[arg(skip = Operation::Write)]
    pub operation: Operation,
    /// The kind of measurement.
    #[arg(skip = Measure::Bandwidth)]
    pub measure: Measure,
    /// Message sizes in bytes. Each size is measured in a step of its own.
    #[serde(rename = "sizes_bytes")]
    #[arg(skip)]
    pub sizes: Vec<u64>,
    /// How much is measured per size.
    #[arg(skip)]
    pub amount: RunLength,
    /// Whether the test runs until the user ends it, and then reports all results. The run length is then an upper
    /// limit.
    #[serde(default)]
    #[arg(skip)]
    pub is_endless: bool,
    /// Which side sends.
    #[serde(flatten)]
    #[arg(skip)]
    pub direction: Direction,
    /// Compare the received data with the sent data.
    ///
    /// The comparison runs after each size, outside the measurement, and covers every byte of the last message in each
    /// slot of the buffer. There are up to 64 slots per queue pair, but only one for receives and for messages above 2
    /// KiB. For fetch-and-add, which requires --iters, the sum is checked. For compare-and-swap, the final value of
    /// each slot and the value that the last swap returned are checked. Each swap expects the value that the previous
    /// swap stored, so one lost or wrong swap makes all later ones fail. If requests of a thread are still in flight a
    /// second after Ctrl-C, that thread's data is not checked.
    #[arg(long = "validate")]
    pub is_validated: bool,
    /// Limit each side's senders to this rate, in Gb/s.
    ///
    /// Messages are posted one at a time, each when it is due, or --burst-size of them at once.
    #[serde(rename = "rate_limit_gigabits_per_second")]
    #[arg(id = "rate_limit_gigabits_per_second", long = "rate-limit", value_name = "GBPS", value_parser = values::positive, hide_short_help = true)]
    pub rate_limit: Option<f64>,
    /// Messages a thread posts at once with --rate-limit [default: 1].
    #[serde(default)]
    #[arg(long, value_name = "N", value_parser = values::count, hide_short_help = true)]
    pub burst_size: Option<u32>,
    /// Pause between messages of a latency test, in us or with a unit.
    ///
    /// The pause is not part of any latency. During the pause, the side that measures continues to poll, or sleeps with
    /// --events. With this option, the test shows how the network and its devices behave after an idle period.
    #[serde(rename = "gap_seconds", with = "maybe_seconds", default)]
    #[arg(id = "gap_seconds", long = "gap", value_name = "TIME", value_parser = values::microseconds, alias = "latency-gap", hide_short_help = true)]
    pub gap: Option<Duration>,
}

/// Which side sends messages, or accesses the memory of its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Flags", into = "Flags")]
pub enum Direction {
    /// The client sends.
    #[default]
    Forward,
    /// The server sends, and the client is passive.
    Reversed,
    /// Both sides send.
    Both,
}

/// The members by which JSON represents a direction.
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
            (true, true) => Err("--reversed and --bidirectional conflict; give one of them"),
        }
    }
}

impl Direction {
    /// Whether both sides send.
    pub fn is_both(self) -> bool {
        self == Self::Both
    }

    /// Whether only the server sends.
    pub fn is_reversed(self) -> bool {
        self == Self::Reversed
    }
}

impl Default for Workload {
    /// Returns the default workload: 5000 writes of 64 KiB.
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
    /// How long a latency test waits for a message, which may have been lost.
    #[serde(rename = "timeout_seconds", with = "seconds", default = "half_a_minute")]
    #[arg(skip = half_a_minute())]
    pub timeout: Duration,
    /// Length of the reported intervals [default: from the run's length].
    ///
    /// Slowest, Median and Fastest are computed from intervals of this length. By default, a run has fewer than twenty
    /// intervals, or each interval lasts one to two seconds; on average, an interval has at least 16 completions. If a
    /// run would have more than 100,000 intervals, their length doubles. On a terminal, with --json-stream and with -D
    /// forever, running figures are printed for each interval (by default 1 s, at least 100 ms). In a latency test,
    /// this is the only effect of the option.
    #[serde(rename = "interval_seconds", with = "maybe_seconds")]
    #[arg(id = "interval_seconds", long = "interval", value_name = "SECONDS", value_parser = values::duration, hide_short_help = true)]
    pub interval: Option<Duration>,
    /// Show changes of these port counters, or all, on both sides.
    ///
    /// Counters are named like files in /sys/class/infiniband/DEVICE/ports/PORT/counters and hw_counters, with or
    /// without the name of the folder; `all` shows the counters that changed. The change of a counter is measured from
    /// before the warm-up to after the last message, and includes the traffic of other programs. Units are the
    /// kernel's: port_xmit_data and port_rcv_data count units of four bytes. softrnic has no counters.
    #[serde(default)]
    #[arg(
        short = 'W',
        long,
        value_name = "LIST",
        value_delimiter = ',',
        alias = "report-counters",
        hide_short_help = true
    )]
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
    fn direction_has_two_flags_in_json() {
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
