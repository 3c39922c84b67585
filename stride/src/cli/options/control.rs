//! How the two sides meet.

use std::time::Duration;

use clap::Args;

use crate::plan::values;

/// What both sides have.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Control channel")]
pub(in crate::cli) struct ControlArgs {
    /// TCP port of the server [default: 18515].
    #[arg(short = 'p', long, value_name = "PORT")]
    pub(in crate::cli) port: Option<u16>,
    /// IPv4 only.
    #[arg(short = '4', long = "ipv4")]
    pub(in crate::cli) ipv4: bool,
    /// IPv6 only.
    #[arg(short = '6', long = "ipv6")]
    pub(in crate::cli) ipv6: bool,
    /// The other side may be silent for so long, and a message of a latency over UC or UD under way: a second at least [default: 30].
    #[arg(long, value_name = "SECONDS", value_parser = values::duration)]
    pub(in crate::cli) timeout: Option<Duration>,
    /// The server ends after one test.
    #[arg(long)]
    pub(in crate::cli) one_off: bool,
}

/// What a test has besides.
#[derive(Debug, Args)]
#[command(next_help_heading = "Control channel")]
pub(in crate::cli) struct Meeting {
    /// Tries for so long to reach a server that is not there yet, or is busy.
    #[arg(long, value_name = "SECONDS", value_parser = values::duration)]
    pub(in crate::cli) wait_server: Option<Duration>,
    /// Both sides are in this process, and there is no server.
    #[arg(long)]
    pub(in crate::cli) loopback: bool,
}
