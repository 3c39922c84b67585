//! What is observed while messages are sent.

use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::run_length::{half_a_minute, maybe_seconds, seconds};
use super::values;

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
