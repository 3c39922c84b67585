//! Sends messages to and fro over a reliable connection and tells how long it took: `ibv_rc_pingpong`, in Rust, and a peer of
//! that program.
//!
//! Here is what belongs to a reliable connection; the game itself, which others play as well, is in `sideway_examples::pingpong`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::queue_pair::{GenericQueuePair, QueuePairType};
use sideway_examples::LocalPort;
use sideway_examples::exchange::Address;
use sideway_examples::pingpong::{self, Carrier, Endpoint, Link, Message, Piece, Place, Play};

const ABOUT: &str = "\
Sends messages to and fro between two programs over a reliable connection (RC) and tells how long it took.

Without SERVER it waits for a client; with SERVER it is the client. The other side may also be rdma-core's ibv_rc_pingpong, \
which has the same options; give both sides the same --size, --iters and --mtu.";

const EXAMPLES: &str = "\
Examples:
  rc_pingpong                                      on the first machine: waits for the second
  rc_pingpong server.example.org                   on the second
  rc_pingpong -d mlx5_0 -g 3 -s 64k -n 10000 -c    another device, GID and size, with the data checked
  ibv_rc_pingpong -d mlx5_0 -g 3 server.example.org     the C program as client

Exit status: 0 when all messages were exchanged, 1 when something failed, 2 for arguments that make no sense.";

/// Send messages to and fro over a reliable connection
#[derive(Debug, Parser)]
#[command(name = "rc_pingpong", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
struct Arguments {
    #[command(flatten)]
    place: Place,

    #[command(flatten)]
    message: Message,

    #[command(flatten)]
    play: Play,
}

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    let Arguments { place, message, play } = arguments;
    let endpoint = Endpoint::new::<ReliableConnection>(&place, &play, message.size, 1)?;
    let link = ReliableConnection::new(&endpoint, message.mtu)?;
    pingpong::play(endpoint, link, out)
}

/// What arrives is acknowledged, what is not is sent again, and a message of any length comes whole.
#[derive(Debug)]
struct ReliableConnection {
    qp: GenericQueuePair,
    local: Address,
    mtu: Mtu,
}

impl ReliableConnection {
    /// A queue pair in INIT, in which receives can be posted.
    fn new(endpoint: &Endpoint, mtu: Mtu) -> Result<Self> {
        let mut builder = endpoint.pd().create_qp_builder();
        builder.setup_qp_type(QueuePairType::ReliableConnection);
        let (qp, local) = endpoint.connection(builder)?;
        Ok(Self { qp, local, mtu })
    }
}

impl Link for ReliableConnection {
    fn addresses(&self) -> Vec<Address> {
        vec![self.local]
    }

    fn connect(&mut self, port: &LocalPort, remotes: &[Address]) -> Result<()> {
        let &[remote] = remotes else { bail!("one queue pair has one peer") };
        port.connect(&self.qp, self.mtu, &self.local, &remote)
    }
}

impl Carrier for ReliableConnection {
    unsafe fn post_send(&mut self, _lane: usize, wr_id: u64, message: Piece) -> Result<()> {
        // SAFETY: the caller's promise: the queue pair goes with `self`.
        unsafe { pingpong::post_send(&mut self.qp, wr_id, message) }
    }

    unsafe fn post_receives(&mut self, receives: &mut dyn Iterator<Item = (u64, Piece)>) -> Result<()> {
        // SAFETY: as above.
        unsafe { pingpong::post_receives(&mut self.qp, receives) }
    }
}
