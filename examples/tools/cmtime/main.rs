//! Measures how long each step takes when the connection manager sets up and tears down many connections. This is a
//! Rust version of `cmtime` from rdma-core up to version 51, with the same options, table and order of steps.

mod client;
mod server;

use std::io::Write;
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Parser;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::queue_pair::QueuePairBuilder;
use sideway::rdmacm::communication_manager::Identifier;
use sideway_examples::Timeout;
use sideway_examples::options::parse_timeout;

const ABOUT: &str = "\
Measures the time of each step of many connections with the RDMA connection manager: identifiers, addresses, routes, queue pairs, \
connections.

Without -s, it is the server, which accepts connections until SIGINT or SIGTERM, or until -c connections have ended. With -s SERVER, it \
is the client, which completes each step for all connections before the next, and prints a table.

The peer may be cmtime of rdma-core up to version 51, which has the same options and table. Later versions have another protocol.";

const COLUMNS: &str = "\
Columns of the table:
  total ms   from the first call of the step to its last completion
  max ms     the slowest connection, from its call to its event, or to the end of a call without event
  min us     the fastest connection
  us / conn  the total divided by the connections that completed the step

Examples:
  cmtime                                on the first machine: the server
  cmtime -s server.example.org -c 1000  on the second: 1000 connections
  cmtime -c 1000                        a server that exits after 1000 connections

Exit status: 0 if all connections were made and ended, 1 otherwise, 2 for invalid arguments.";

/// Measure the steps of making and ending many connections
#[derive(Clone, Debug, Parser)]
#[command(name = "cmtime", version, long_about = ABOUT, after_help = COLUMNS, max_term_width = 110)]
struct Arguments {
    /// Name or address of the server; without it, this program is the server
    #[arg(short, long, value_name = "SERVER")]
    server: Option<String>,

    /// Own address [default: server: all; client: by the route]
    #[arg(short, long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,

    /// Connections of the client [default: 100], or of the server before it exits [default: no limit]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: Option<u32>,

    /// Port of the server
    #[arg(short, long, default_value_t = 7471, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// Retries of a resolution, and of a message (at most 7)
    #[arg(short, long, value_name = "N", default_value_t = 2)]
    retries: u8,

    /// Limit of a resolution, in milliseconds
    #[arg(short, long, value_name = "MS", default_value_t = 2000,
          value_parser = clap::value_parser!(u32).range(1..=3_600_000))]
    timeout: u32,

    /// Threads: of the client, each with an event channel; of the server, to accept
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,

    /// Client: limit of a wait for the next event; 0 = no limit
    #[arg(long, value_name = "SECONDS", default_value = "150", value_parser = parse_timeout, requires = "server")]
    patience: Timeout,
}

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    softrnic::register()?;
    match &arguments.server {
        Some(server) => client::run(&arguments, server, out),
        None => server::run(&arguments, out),
    }
}

/// The objects that all queue pairs on a device share: a protection domain, and a completion queue that stays empty.
#[derive(Debug)]
struct Domain {
    context: Arc<DeviceContext>,
    /// The builder of all queue pairs, which have the same options.
    builder: QueuePairBuilder,
}

impl Domain {
    fn new(context: Arc<DeviceContext>) -> Result<Self> {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq_builder().setup_cqe(1).build()?;
        let mut builder = pd.create_qp_builder();
        builder.setup_max_send_wr(1).setup_max_recv_wr(1).setup_send_cq(&cq).setup_recv_cq(&cq);
        Ok(Self { context, builder })
    }
}

/// The device of the identifier.
fn device(id: &Arc<Identifier>) -> Result<Arc<DeviceContext>> {
    id.get_device_context().context("the connection has no device")
}
