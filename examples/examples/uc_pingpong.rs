//! Sends messages back and forth over an unreliable connection. Interoperates with rdma-core's `ibv_uc_pingpong`. A
//! message arrives complete and once, or not at all; a send completes when the device has sent it.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::queue_pair::{QueuePair, QueuePairType};
use sideway_examples::pingpong::{self, Endpoint, MessageOptions, QueuePairs, RunOptions, Service, SideOptions};

const ABOUT: &str = "\
Sends messages back and forth between two programs over an unreliable connection (UC), and prints the time.

Nothing is acknowledged: if a packet is lost, so is its message, and both sides wait until --timeout.

The peer may be rdma-core's ibv_uc_pingpong, which has the same options. Both sides require the same --size, --iters and --mtu.";

const EXAMPLES: &str = "\
Examples:
  uc_pingpong                                   on the first machine: the server
  uc_pingpong server.example.org                on the second
  uc_pingpong -d mlx5_0 -g 3 -s 64k -c         another device, GID and size, with data check
  ibv_uc_pingpong -g 3 server.example.org       the C program as client; Ethernet requires its -g

Exit status: 0 if all messages were exchanged, 1 on failure, 2 for invalid arguments.";

/// Send messages back and forth over an unreliable connection
#[derive(Debug, Parser)]
#[command(name = "uc_pingpong", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
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
    let endpoint = Endpoint::new(&side, &run, Service::UNRELIABLE, message.size, 1)?;
    let mut builder = endpoint.pd().create_qp_builder();
    builder.setup_qp_type(QueuePairType::UnreliableConnection);
    let qp = endpoint.queue_pair(builder)?;
    // The peer only sends. There are no acknowledgements, and so no time-outs, retries, reads or atomics.
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
                Ok(qp.connect_uc(remote, &options)?)
            })
        },
        out,
    )
}
