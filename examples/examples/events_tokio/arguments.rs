//! The command line.

use clap::Parser;
use sideway_examples::units::{parse_message_size, parse_timeout};
use sideway_examples::{PortChoice, Timeout};

const ABOUT: &str = "\
Sends messages to and fro between two queue pairs of one device, in one program and on one thread: each side is a future of the \
tokio runtime that sleeps until its completion channel tells of a completion. What the device reports meanwhile (a port that goes \
down, an address that changes) is printed as it comes.";

const EXAMPLES: &str = "\
Examples:
  events_tokio
  events_tokio -d mlx5_0 -g 3 -s 64k -n 10000
  events_tokio --watch 60        and then `ip link set eth0 down` elsewhere

Exit status: 0 when all messages were exchanged, 1 when something failed, 2 for arguments that make no sense.";

/// Send messages to and fro in an async runtime, driven by completion events
#[derive(Clone, Debug, Parser)]
#[command(name = "events_tokio", long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) port_choice: PortChoice,

    /// Bytes in a message; k, M and G are powers of 1024
    #[arg(short, long, value_name = "SIZE", default_value = "4096", value_parser = parse_message_size)]
    pub(crate) size: u32,

    /// Messages in either direction
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) iters: u32,

    /// Give up when nothing completes for so long; 0 waits for ever
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_timeout)]
    pub(crate) timeout: Timeout,

    /// Go on printing what the device reports for so long after the last message
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_timeout)]
    pub(crate) watch: Timeout,
}
