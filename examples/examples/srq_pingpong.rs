//! Sends messages back and forth over many reliable connections with one shared receive queue. Interoperates with
//! rdma-core's `ibv_srq_pingpong`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::queue_pair::QueuePair;
use sideway_examples::pingpong::{self, Endpoint, MessageOptions, QueuePairs, RunOptions, Service, SideOptions};

const ABOUT: &str = "\
Sends messages back and forth between two programs over many reliable connections (RC), all with receives from one \
shared receive queue, and prints the time. --iters and --rx-depth are totals over all connections.

The peer may be rdma-core's ibv_srq_pingpong, which has the same options. Both sides require the same --size, --iters, --num-qp and \
--mtu.";

const EXAMPLES: &str = "\
Examples:
  srq_pingpong                                      on the first machine: the server
  srq_pingpong server.example.org                   on the second
  srq_pingpong -d mlx5_0 -g 3 -q 64 -s 64k          another device, GID, number of connections and size
  ibv_srq_pingpong -d mlx5_0 -g 3 server.example.org     the C program as client

Exit status: 0 if all messages were exchanged, 1 on failure, 2 for invalid arguments.";

/// Maximum number of connections. Each side sends this many addresses, as the C program does.
const MAX_CONNECTIONS: usize = 256;

/// Send messages back and forth over many connections that share their receives
#[derive(Debug, Parser)]
#[command(name = "srq_pingpong", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
struct Arguments {
    #[command(flatten)]
    side: SideOptions,

    #[command(flatten)]
    message: MessageOptions,

    /// Number of connections; each requires one receive of --rx-depth
    #[arg(short = 'q', long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=MAX_CONNECTIONS as i64))]
    num_qp: u32,

    #[command(flatten)]
    run: RunOptions,
}

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(Arguments { side, message, num_qp, run }: Arguments, out: &mut dyn Write) -> Result<()> {
    let rx_depth = run.rx_depth;
    ensure!(num_qp <= rx_depth, "--rx-depth {rx_depth} is below --num-qp {num_qp}; give --rx-depth {num_qp} or more");
    let endpoint = Endpoint::new(&side, &run, Service::RELIABLE, message.size, num_qp)?;
    let srq = endpoint.pd().create_srq_builder().setup_max_wr(rx_depth).build()?;
    let connections = (0..num_qp).map(|_| {
        let mut builder = endpoint.pd().create_qp_builder();
        builder.setup_srq(&srq);
        endpoint.queue_pair(builder)
    });
    let qps = connections.collect::<Result<Vec<_>>>()?;
    // The peer only sends; it neither writes nor reads memory of this side.
    let options = endpoint.port().options(AccessFlags::empty(), message.mtu);
    let locals = qps.iter().map(|qp| qp.local_endpoint(&options)).collect::<Result<Vec<_>, _>>()?;
    // A message on any connection takes the next receive of the shared queue.
    let qps = QueuePairs::Connected(qps, Some(srq));
    pingpong::play(
        endpoint,
        qps,
        (&locals, MAX_CONNECTIONS),
        |qps, port, remotes| {
            let mut pairs = qps.connections()?.iter().zip(remotes);
            pairs.try_for_each(|(qp, remote)| {
                port.check(remote)?;
                Ok(qp.connect_rc(remote, &options)?)
            })
        },
        out,
    )
}
