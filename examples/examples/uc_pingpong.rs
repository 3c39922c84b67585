//! Sends messages to and fro over an unreliable connection and tells how long it took: `ibv_uc_pingpong`, in Rust, and a peer of
//! that program.
//!
//! Here is what belongs to an unreliable connection; the game itself, which others play as well, is in
//! `sideway_examples::pingpong`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::queue_pair::{GenericQueuePair, QueuePair, QueuePairAttribute, QueuePairState, QueuePairType};
use sideway_examples::LocalPort;
use sideway_examples::exchange::Address;
use sideway_examples::pingpong::{self, Carrier, Endpoint, Link, Message, Piece, Place, Play};

const ABOUT: &str = "\
Sends messages to and fro between two programs over an unreliable connection (UC) and tells how long it took.

Nobody acknowledges what is sent: when a packet is lost, so is its message, and both sides wait for what does not come until \
--timeout ends the game.

Without SERVER it waits for a client; with SERVER it is the client. The other side may also be rdma-core's ibv_uc_pingpong, \
whose options are the same as far as it has them; give both sides the same --size, --iters and --mtu.";

const EXAMPLES: &str = "\
Examples:
  uc_pingpong                                   on the first machine: waits for the second
  uc_pingpong server.example.org                on the second
  uc_pingpong -d mlx5_0 -g 3 -s 64k -c         another device, GID and size; the data checked
  ibv_uc_pingpong -g 3 server.example.org       the C program as client; Ethernet needs its -g

Exit status: 0 when all messages were exchanged, 1 when something failed, 2 for arguments that make no sense.";

/// Send messages to and fro over an unreliable connection
#[derive(Debug, Parser)]
#[command(name = "uc_pingpong", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
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
    let endpoint = Endpoint::new::<UnreliableConnection>(&place, &play, message.size, 1)?;
    let link = UnreliableConnection::new(&endpoint, message.mtu)?;
    pingpong::play(endpoint, link, out)
}

/// A message comes whole and once, or not at all; a send completes when it has left.
#[derive(Debug)]
struct UnreliableConnection {
    qp: GenericQueuePair,
    local: Address,
    mtu: Mtu,
}

impl UnreliableConnection {
    /// A queue pair in INIT, in which receives can be posted.
    fn new(endpoint: &Endpoint, mtu: Mtu) -> Result<Self> {
        let mut builder = endpoint.pd().create_qp_builder();
        builder.setup_qp_type(QueuePairType::UnreliableConnection);
        let (qp, local) = endpoint.connection(builder)?;
        Ok(Self { qp, local, mtu })
    }
}

impl Link for UnreliableConnection {
    fn addresses(&self) -> Vec<Address> {
        vec![self.local]
    }

    /// INIT to RTR, which knows the peer, and on to RTS, in which sends are processed. There are no acknowledgements, and so
    /// no times to wait for them, no retries, and no reads or atomics.
    fn connect(&mut self, port: &LocalPort, remotes: &[Address]) -> Result<()> {
        let &[remote] = remotes else { bail!("one queue pair has one peer") };
        let mut ready_to_receive = QueuePairAttribute::new();
        ready_to_receive
            .setup_state(QueuePairState::ReadyToReceive)
            .setup_path_mtu(self.mtu)
            .setup_dest_qp_num(remote.qp_num)
            .setup_rq_psn(remote.psn)
            .setup_address_vector(&port.way(&remote)?);
        self.qp.modify(&ready_to_receive)?;

        let mut ready_to_send = QueuePairAttribute::new();
        ready_to_send.setup_state(QueuePairState::ReadyToSend).setup_sq_psn(self.local.psn);
        Ok(self.qp.modify(&ready_to_send)?)
    }
}

impl Carrier for UnreliableConnection {
    const UNRELIABLE: Option<&'static str> = Some("An unreliable connection (UC) loses messages");

    unsafe fn post_send(&mut self, _lane: usize, wr_id: u64, message: Piece) -> Result<()> {
        // SAFETY: the caller's promise: the queue pair goes with `self`.
        unsafe { pingpong::post_send(&mut self.qp, wr_id, message) }
    }

    unsafe fn post_receives(&mut self, receives: &mut dyn Iterator<Item = (u64, Piece)>) -> Result<()> {
        // SAFETY: as above.
        unsafe { pingpong::post_receives(&mut self.qp, receives) }
    }
}
