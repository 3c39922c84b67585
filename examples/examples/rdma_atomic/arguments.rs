//! The command line.

use clap::Parser;
use sideway_examples::exchange::DEFAULT_PORT;
use sideway_examples::units::parse_timeout;
use sideway_examples::{PortChoice, Timeout};

use super::message::MOST_QUEUE_PAIRS;

const ABOUT: &str = "\
Several queue pairs change one counter in the memory of a peer, at the same time, and none of them loses a step: first by \
fetch-and-add, then by compare-and-swap.

The counter is 8 bytes in the memory of the server, which does nothing but wait: its device does the work. The client has the \
queue pairs, each used by a thread of its own. In the end both sides check that the counter is the sum of all additions.

Without SERVER it holds the counter and waits for a client; with SERVER it is the client. With --loopback one process is both.";

const EXAMPLES: &str = "\
Examples:
  rdma_atomic --loopback                           both sides in one process
  rdma_atomic                                      on the first machine: holds the counter
  rdma_atomic -q 8 -n 10000 server.example.org     on the second: 8 queue pairs, 10000 steps each

Exit status: 0 when the sum is right, 1 when it is not or something failed, 2 for arguments that make no sense.";

/// Change one counter from several queue pairs, by fetch-and-add and compare-and-swap
#[derive(Clone, Debug, Parser)]
#[command(name = "rdma_atomic", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
pub(crate) struct Arguments {
    /// The host that holds the counter, as a name or an address; none makes this program the server
    pub(crate) server: Option<String>,

    /// Hold the counter and change it in one process, over the device
    #[arg(long, conflicts_with_all = ["server", "port"])]
    pub(crate) loopback: bool,

    /// TCP port on which the two programs find each other
    #[arg(short, long, default_value_t = DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,

    #[command(flatten)]
    pub(crate) port_choice: PortChoice,

    /// Queue pairs that change the counter; the client says
    #[arg(short = 'q', long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MOST_QUEUE_PAIRS)))]
    pub(crate) num_qp: u16,

    /// Steps of each queue pair, by either operation; the client says
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) iters: u32,

    /// What each step adds; the client says
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) add: u32,

    /// Give up when the other side says nothing for so long, which for the server is as long as the client works; 0 waits
    /// for ever
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_timeout)]
    pub(crate) timeout: Timeout,
}
