//! Sends messages back and forth over a reliable connection. Interoperates with rdma-core's `ibv_rc_pingpong`. The
//! device acknowledges each packet and retransmits lost ones, so a message of any length arrives complete.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::queue_pair::QueuePair;
use sideway_examples::pingpong::{self, Endpoint, MessageOptions, QueuePairs, RunOptions, Service, SideOptions};

const ABOUT: &str = "\
Sends messages back and forth between two programs over a reliable connection (RC), and prints the time.

The peer may be rdma-core's ibv_rc_pingpong, which has the same options. Both sides require the same --size, --iters and --mtu.";

const EXAMPLES: &str = "\
Examples:
  rc_pingpong                                      on the first machine: the server
  rc_pingpong server.example.org                   on the second
  rc_pingpong -d mlx5_0 -g 3 -s 64k -n 10000 -c    another device, GID and size, with data check
  ibv_rc_pingpong -d mlx5_0 -g 3 server.example.org     the C program as client

Exit status: 0 if all messages were exchanged, 1 on failure, 2 for invalid arguments.";

/// Send messages back and forth over a reliable connection
#[derive(Debug, Parser)]
#[command(name = "rc_pingpong", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
struct Arguments {
    #[command(flatten)]
    side: SideOptions,

    #[command(flatten)]
    message: MessageOptions,

    #[command(flatten)]
    run: RunOptions,
}

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(Arguments { side, message, run }: Arguments, out: &mut dyn Write) -> Result<()> {
    let endpoint = Endpoint::new(&side, &run, Service::RELIABLE, message.size, 1)?;
    let qp = endpoint.queue_pair(endpoint.pd().create_qp_builder())?;
    // The peer only sends; it neither writes nor reads memory of this side.
    let options = endpoint.port().options(AccessFlags::empty(), message.mtu);
    let local = qp.local_endpoint(&options)?;
    let qps = QueuePairs::Connected(vec![qp], None);
    pingpong::play(
        endpoint,
        qps,
        (&[local], 1),
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
