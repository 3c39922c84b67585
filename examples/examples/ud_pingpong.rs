//! Sends messages to and fro as datagrams and tells how long it took: `ibv_ud_pingpong`, in Rust, and a peer of that program.
//!
//! Here is what belongs to datagrams; the game itself, which others play as well, is in `sideway_examples::pingpong`.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Parser;
use sideway::ibverbs::address::AddressHandle;
use sideway::ibverbs::device_context::PortAttr;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{Datagram, GenericQueuePair, QueuePair, QueuePairAttribute, QueuePairState};
use sideway_examples::exchange::Address;
use sideway_examples::pingpong::{self, Carrier, Endpoint, Link, Piece, Place, Play};
use sideway_examples::units::parse_message_size;
use sideway_examples::{LocalPort, check_datagram_size};

const ABOUT: &str = "\
Sends messages to and fro between two programs as datagrams (UD) and tells how long it took.

A datagram is one packet: a message is at most as long as the port's active MTU. Nobody acknowledges it: when one is lost, both \
sides wait for what does not come until --timeout ends the game.

Without SERVER it waits for a client; with SERVER it is the client. The other side may also be rdma-core's ibv_ud_pingpong, \
whose options are the same as far as it has them; give both sides the same --size and --iters.";

const EXAMPLES: &str = "\
Examples:
  ud_pingpong                                   on the first machine: waits for the second
  ud_pingpong server.example.org                on the second
  ud_pingpong -d mlx5_0 -g 3 -s 2k  -c         another device, GID and size; the data checked
  ibv_ud_pingpong -g 3 server.example.org       the C program as client; Ethernet needs its -g

Exit status: 0 when all messages were exchanged, 1 when something failed, 2 for arguments that make no sense.";

/// Send messages to and fro as datagrams
#[derive(Debug, Parser)]
#[command(name = "ud_pingpong", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
struct Arguments {
    #[command(flatten)]
    place: Place,

    /// Bytes in a message, at most the port's active MTU; k is 1024
    #[arg(short, long, value_name = "SIZE", default_value = "1024", value_parser = parse_message_size)]
    size: u32,

    #[command(flatten)]
    play: Play,
}

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    let Arguments { place, size, play } = arguments;
    let endpoint = Endpoint::new::<Datagrams>(&place, &play, size, 1)?;
    let link = Datagrams::new(&endpoint)?;
    pingpong::play(endpoint, link, out)
}

/// What a datagram must name for the queue pair to take it. The C program has the same.
const Q_KEY: u32 = 0x1111_1111;

/// A queue pair that has no peer of its own: each message says where it goes.
#[derive(Debug)]
struct Datagrams {
    qp: GenericQueuePair<Datagram>,
    pd: Arc<ProtectionDomain>,
    local: Address,
    /// The way to the peer, and the number of its queue pair.
    peer: Option<(Arc<AddressHandle>, u32)>,
}

impl Datagrams {
    /// A queue pair in INIT, in which receives can be posted.
    fn new(endpoint: &Endpoint) -> Result<Self> {
        let qp = endpoint.queue_pair(endpoint.pd().create_ud_qp_builder())?;
        qp.modify(endpoint.port().to_init().setup_qkey(Q_KEY))?;
        let local = endpoint.port().address(qp.qp_number());
        Ok(Self { qp, pd: Arc::clone(endpoint.pd()), local, peer: None })
    }
}

impl Link for Datagrams {
    fn check_size(port: &PortAttr, size: u32) -> Result<()> {
        check_datagram_size(port, size)
    }

    fn addresses(&self) -> Vec<Address> {
        vec![self.local]
    }

    /// INIT to RTR and on to RTS, neither of which knows a peer. The way to it is what an address handle is made from.
    fn connect(&mut self, port: &LocalPort, remotes: &[Address]) -> Result<()> {
        let &[remote] = remotes else { bail!("there is one peer") };
        self.qp.modify(QueuePairAttribute::new().setup_state(QueuePairState::ReadyToReceive))?;
        self.qp
            .modify(QueuePairAttribute::new().setup_state(QueuePairState::ReadyToSend).setup_sq_psn(self.local.psn))?;
        let ah = self.pd.create_ah(&port.way(&remote)?)?;
        self.peer = Some((ah, remote.qp_num));
        Ok(())
    }
}

impl Carrier for Datagrams {
    /// The global routing header, or the room for one where the datagram came without.
    const HEADROOM: u32 = 40;
    const UNRELIABLE: Option<&'static str> = Some("Datagrams (UD) get lost");

    unsafe fn post_send(&mut self, _lane: usize, wr_id: u64, message: Piece) -> Result<()> {
        let (ah, remote_qpn) = self.peer.as_ref().context("there is no peer yet")?;
        // SAFETY: the caller's promise: the queue pair goes with `self`.
        unsafe { pingpong::post_datagram(&mut self.qp, wr_id, (ah, *remote_qpn, Q_KEY), message) }
    }

    unsafe fn post_receives(&mut self, receives: &mut dyn Iterator<Item = (u64, Piece)>) -> Result<()> {
        // SAFETY: as above.
        unsafe { pingpong::post_receives(&mut self.qp, receives) }
    }
}
