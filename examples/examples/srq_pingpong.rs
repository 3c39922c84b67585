//! Sends messages to and fro over many reliable connections that take their receives from one shared receive queue, and tells
//! how long it took: `ibv_srq_pingpong`, in Rust, and a peer of that program.
//!
//! Here is what belongs to connections that share their receives; the game itself, which others play as well, is in
//! `sideway_examples::pingpong`.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::queue_pair::GenericQueuePair;
use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;
use sideway_examples::LocalPort;
use sideway_examples::exchange::Address;
use sideway_examples::pingpong::{self, Carrier, Endpoint, Link, Message, Piece, Place, Play};

const ABOUT: &str = "\
Sends messages to and fro between two programs over many reliable connections (RC), all of which take their receives from one \
shared receive queue, and tells how long it took. --iters and --rx-depth are those of all connections together.

Without SERVER it waits for a client; with SERVER it is the client. The other side may also be rdma-core's ibv_srq_pingpong, \
which has the same options; give both sides the same --size, --iters, --num-qp and --mtu.";

const EXAMPLES: &str = "\
Examples:
  srq_pingpong                                      on the first machine: waits for the second
  srq_pingpong server.example.org                   on the second
  srq_pingpong -d mlx5_0 -g 3 -q 64 -s 64k          another device, GID, number of connections and size
  ibv_srq_pingpong -d mlx5_0 -g 3 server.example.org     the C program as client

Exit status: 0 when all messages were exchanged, 1 when something failed, 2 for arguments that make no sense.";

/// Connections of a program, and addresses that each side tells, however many it has: as with the C program.
const MOST: usize = 256;

/// Send messages to and fro over many connections that share their receives
#[derive(Debug, Parser)]
#[command(name = "srq_pingpong", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
struct Arguments {
    #[command(flatten)]
    place: Place,

    #[command(flatten)]
    message: Message,

    /// Connections; each needs a receive of --rx-depth
    #[arg(short = 'q', long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=MOST as i64))]
    num_qp: u32,

    #[command(flatten)]
    play: Play,
}

impl Arguments {
    /// What the options have to do with each other.
    fn check(&self) -> Result<()> {
        let (num_qp, rx_depth) = (self.num_qp, self.play.rx_depth);
        ensure!(
            num_qp <= rx_depth,
            "--rx-depth {rx_depth} is too small for --num-qp {num_qp}: each connection needs a receive"
        );
        Ok(())
    }
}

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    arguments.check()?;
    let Arguments { place, message, num_qp, play } = arguments;
    let endpoint = Endpoint::new::<SharingConnections>(&place, &play, message.size, num_qp)?;
    let link = SharingConnections::new(&endpoint, num_qp, play.rx_depth, message.mtu)?;
    pingpong::play(endpoint, link, out)
}

/// Many reliable connections: a message takes the next receive of the shared queue, whichever connection it comes over.
#[derive(Debug)]
struct SharingConnections {
    // The device may use the receives of the shared queue as long as one of these exists: both go before the memory.
    ends: Vec<(GenericQueuePair, Address)>,
    srq: SharedReceiveQueue,
    /// The place of each queue pair, by its number.
    lanes: BTreeMap<u32, usize>,
    mtu: Mtu,
}

impl SharingConnections {
    /// Queue pairs in INIT, and the queue of their receives.
    fn new(endpoint: &Endpoint, count: u32, rx_depth: u32, mtu: Mtu) -> Result<Self> {
        let srq = endpoint.pd().create_srq_builder().setup_max_wr(rx_depth).build()?;
        let ends = (0..count).map(|_| {
            let mut builder = endpoint.pd().create_qp_builder();
            builder.setup_srq(&srq);
            endpoint.connection(builder)
        });
        let ends: Vec<_> = ends.collect::<Result<_>>()?;
        let lanes = ends.iter().enumerate().map(|(lane, (_, local))| (local.qp_num, lane)).collect();
        Ok(Self { ends, srq, lanes, mtu })
    }
}

impl Link for SharingConnections {
    const ADDRESSES_TOLD: Option<usize> = Some(MOST);

    fn addresses(&self) -> Vec<Address> {
        self.ends.iter().map(|(_, local)| *local).collect()
    }

    fn connect(&mut self, port: &LocalPort, remotes: &[Address]) -> Result<()> {
        if remotes.len() != self.ends.len() {
            bail!("each queue pair has one peer");
        }
        let mut pairs = self.ends.iter().zip(remotes);
        pairs.try_for_each(|((qp, local), remote)| port.connect(qp, self.mtu, local, remote))
    }
}

impl Carrier for SharingConnections {
    fn lanes(&self) -> usize {
        self.ends.len()
    }

    fn lane(&self, qp_num: u32) -> Option<usize> {
        self.lanes.get(&qp_num).copied()
    }

    unsafe fn post_send(&mut self, lane: usize, wr_id: u64, message: Piece) -> Result<()> {
        let (qp, _) = self.ends.get_mut(lane).context("there is no such lane")?;
        // SAFETY: the caller's promise: the queue pair goes with `self`.
        unsafe { pingpong::post_send(qp, wr_id, message) }
    }

    unsafe fn post_receives(&mut self, receives: &mut dyn Iterator<Item = (u64, Piece)>) -> Result<()> {
        let mut batch = self.srq.start_post_recv();
        for (wr_id, place) in receives {
            // SAFETY: the caller's promise: the shared queue and all its queue pairs go with `self`.
            unsafe { batch.construct_wr(wr_id).setup_sge(place.lkey, place.addr, place.length) };
        }
        Ok(batch.post()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_connections_has_bounds() {
        for number in ["0", "257"] {
            assert!(Arguments::try_parse_from(["srq_pingpong", "-q", number]).is_err());
        }
        let arguments = Arguments::try_parse_from(["srq_pingpong", "-q", "256", "-r", "255"]).unwrap();
        assert!(arguments.check().unwrap_err().to_string().contains("each connection needs a receive"));
        assert_eq!(Arguments::try_parse_from(["srq_pingpong"]).unwrap().num_qp, 16);
    }
}
