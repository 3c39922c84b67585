//! Sends messages back and forth as datagrams. Interoperates with rdma-core's `ibv_ud_pingpong`. The queue pair is not
//! connected: each message has an address.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Parser;
use sideway::ibverbs::address::Gid;
use sideway::ibverbs::queue_pair::{QueuePair, QueuePairAttribute, QueuePairEndpoint, QueuePairState};
use sideway_examples::options::parse_message_size;
use sideway_examples::pingpong::{self, Endpoint, Peer, QueuePairs, RunOptions, Service, SideOptions};

const ABOUT: &str = "\
Sends messages back and forth between two programs as datagrams (UD), and prints the time.

A datagram is one packet: a message is at most as long as the port's active MTU. Nothing is acknowledged: if a datagram is lost, \
both sides wait until --timeout.

The peer may be rdma-core's ibv_ud_pingpong, which has the same options. Both sides require the same --size and --iters.";

const EXAMPLES: &str = "\
Examples:
  ud_pingpong                                   on the first machine: the server
  ud_pingpong server.example.org                on the second
  ud_pingpong -d mlx5_0 -g 3 -s 2k  -c         another device, GID and size, with data check
  ibv_ud_pingpong -g 3 server.example.org       the C program as client; Ethernet requires its -g

Exit status: 0 if all messages were exchanged, 1 on failure, 2 for invalid arguments.";

/// Send messages back and forth as datagrams
#[derive(Debug, Parser)]
#[command(name = "ud_pingpong", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
struct Arguments {
    #[command(flatten)]
    side: SideOptions,

    /// Bytes in a message, at most the port's active MTU; k is 1024
    #[arg(short, long, value_name = "SIZE", default_value = "1024", value_parser = parse_message_size)]
    size: u32,

    #[command(flatten)]
    run: RunOptions,
}

/// The Q_Key that datagrams to the queue pair contain; the C program uses the same value.
const Q_KEY: u32 = 0x1111_1111;

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(Arguments { side, size, run }: Arguments, out: &mut dyn Write) -> Result<()> {
    let endpoint = Endpoint::new(&side, &run, Service::DATAGRAM, size, 1)?;
    let pd = Arc::clone(endpoint.pd());
    let qp = endpoint.queue_pair(pd.create_ud_qp_builder())?;
    let port = endpoint.port();
    let gid = port.gid().map_or_else(Gid::default, |entry| entry.gid());
    let local = QueuePairEndpoint { qp_num: qp.qp_number(), lid: port.attr().lid(), gid, ..Default::default() };
    pingpong::play(
        endpoint,
        QueuePairs::Datagram { qp, pd, peer: Peer::Unknown },
        (&[local], 1),
        |qps, port, remotes| {
            let QueuePairs::Datagram { qp, pd, peer } = qps else { return Ok(()) };
            // INIT, RTR and RTS require no peer: the address handle has the path to it.
            let mut init = QueuePairAttribute::new();
            init.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_port(port.port_num()).setup_qkey(Q_KEY);
            qp.modify(&init)?;
            qp.modify(QueuePairAttribute::new().setup_state(QueuePairState::ReadyToReceive))?;
            let mut ready_to_send = QueuePairAttribute::new();
            qp.modify(ready_to_send.setup_state(QueuePairState::ReadyToSend).setup_sq_psn(local.psn))?;
            let remote = remotes.first().context("there is one peer")?;
            *peer = Peer::Ready { path: pd.create_ah(&port.path(remote)?)?, qp_num: remote.qp_num, qkey: Q_KEY };
            Ok(())
        },
        out,
    )
}
