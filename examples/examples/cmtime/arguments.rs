//! The command line.

use std::net::IpAddr;

use clap::Parser;
use sideway_examples::Timeout;
use sideway_examples::units::parse_timeout;

const ABOUT: &str = "\
Times the steps of making and ending many connections by the RDMA connection manager: identifiers, addresses, routes, queue \
pairs, connections.

Without -s it is the server, which accepts whatever comes: for ever, or as many connections as -c says, until it is ended by \
SIGINT or SIGTERM. With -s SERVER it is the client, which takes each step for all connections before the next, and prints a table.

The other side may be cmtime of rdma-core up to version 51, whose options and table these are. Later versions speak to themselves \
only.";

const COLUMNS: &str = "\
Of the table:
  total ms   from before the first call of the step to its last connection
  max ms     the slowest connection, from before the call to its event, or to the end of a call that has none
  min us     the fastest one
  us / conn  the total over all connections that got through the step

Examples:
  cmtime                                on the first machine: the server
  cmtime -s server.example.org -c 1000  on the second: 1000 connections
  cmtime -c 1000                        a server that ends after 1000 connections

Exit status: 0 when all connections were made and ended, 1 when not, 2 for arguments that make no sense.";

/// Time the steps of making and ending many connections
#[derive(Clone, Debug, Parser)]
#[command(name = "cmtime", version, long_about = ABOUT, after_help = COLUMNS, max_term_width = 110)]
pub(crate) struct Arguments {
    /// The server's name or address; none makes this program the server
    #[arg(short, long, value_name = "SERVER")]
    pub(crate) server: Option<String>,

    /// The address of this machine to use; the server listens on all where there is none
    #[arg(short, long, value_name = "ADDRESS")]
    pub(crate) bind: Option<IpAddr>,

    /// Connections that the client makes [default: 100], or after which the server ends [default: never]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections: Option<u32>,

    /// The server's port
    #[arg(short, long, default_value_t = 7471, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,

    /// How often an address or a route is asked for again, and a message is sent again (at most 7 of these)
    #[arg(short, long, value_name = "N", default_value_t = 2)]
    pub(crate) retries: u8,

    /// How long an address or a route may take each time, in milliseconds
    #[arg(short, long, value_name = "MS", default_value_t = 2000,
          value_parser = clap::value_parser!(u32).range(1..=3_600_000))]
    pub(crate) timeout: u32,

    /// Threads: of the client, each with an event channel and its share of the connections; of the server, to accept beside the
    /// one that takes the events, which does it all with 1
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: u16,

    /// The client gives up when nothing happens for so long; 0 waits for ever
    #[arg(long, value_name = "SECONDS", default_value = "150", value_parser = parse_timeout, requires = "server")]
    pub(crate) patience: Timeout,
}

impl Arguments {
    /// How many connections the client makes.
    pub(crate) fn client_connections(&self) -> usize {
        self.connections.unwrap_or(100) as usize
    }
}
