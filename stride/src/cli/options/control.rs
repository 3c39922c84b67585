//! Options of the control channel.

use std::time::Duration;

use clap::Args;

use crate::plan::values;

/// Options that client and server share.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Control channel")]
pub(in crate::cli) struct ControlArgs {
    /// TCP port of the server [default: 18515].
    #[arg(short = 'p', long, value_name = "PORT", hide_short_help = true)]
    pub(in crate::cli) port: Option<u16>,
    /// Use IPv4 only.
    #[arg(short = '4', long = "ipv4", hide_short_help = true)]
    pub(in crate::cli) ipv4: bool,
    /// Use IPv6 only.
    #[arg(short = '6', long = "ipv6", hide_short_help = true)]
    pub(in crate::cli) ipv6: bool,
    /// Longest silence of the peer, in seconds [default: 30].
    ///
    /// A latency test over UC or UD also waits for this time for a message, which may have been lost. The minimum is
    /// 1s.
    #[arg(long, value_name = "SECONDS", value_parser = values::duration, hide_short_help = true)]
    pub(in crate::cli) timeout: Option<Duration>,
    /// Exit after one test (server).
    #[arg(long, hide_short_help = true)]
    pub(in crate::cli) one_off: bool,
}

/// Options of the client only.
#[derive(Debug, Args)]
#[command(next_help_heading = "Control channel")]
pub(in crate::cli) struct ConnectArgs {
    /// Keep trying to reach the server for this time.
    ///
    /// The client keeps trying while the server is unreachable, while it closes the connection before its hello, and
    /// while it is busy with another client. Without this option, a client retries a busy server for two seconds only.
    #[arg(long, value_name = "SECONDS", value_parser = values::duration, hide_short_help = true)]
    pub(in crate::cli) wait_server: Option<Duration>,
    /// Run both sides in this process, without a server.
    #[arg(long)]
    pub(in crate::cli) loopback: bool,
}
