//! The command line.

use anyhow::{Result, bail};
use clap::Parser;
use sideway::ibverbs::device_context::Mtu;
use sideway_examples::Timeout;
use sideway_examples::exchange::DEFAULT_PORT;
use sideway_examples::pingpong::PortChoice;
use sideway_examples::units::{parse_message_size, parse_mtu, parse_timeout};

use super::partners::MOST;

const ABOUT: &str = "\
Sends messages to and fro between two programs over many reliable connections (RC), all of which take their receives from one \
shared receive queue, and tells how long it took.

Without SERVER it waits for a client; with SERVER it is the client. The other side may also be rdma-core's ibv_srq_pingpong, \
which has the same options; give both sides the same --size, --iters, --num-qp and --mtu.";

const EXAMPLES: &str = "\
Examples:
  srq_pingpong                                      on the first machine: waits for the second
  srq_pingpong server.example.org                   on the second
  srq_pingpong -d mlx5_0 -g 3 -q 64 -s 64k          another device, GID, number of connections and size
  ibv_srq_pingpong -d mlx5_0 -g 3 server.example.org     the C program as client

Exit status: 0 when all messages were exchanged, 1 when something failed, 2 for arguments that make no sense.";

/// Send messages to and fro over many connections that share their receives
#[derive(Clone, Debug, Parser)]
#[command(name = "srq_pingpong", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
pub(crate) struct Arguments {
    /// The host that the server runs on, as a name or an address; none makes this program the server
    pub(crate) server: Option<String>,

    /// TCP port on which the two programs find each other
    #[arg(short, long, default_value_t = DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,

    /// RDMA device, such as mlx5_0 [default: the first]
    #[arg(short = 'd', long, value_name = "DEVICE")]
    pub(crate) ib_dev: Option<String>,

    /// Port of the device, from 1
    #[arg(short = 'i', long, value_name = "PORT", default_value_t = 1)]
    pub(crate) ib_port: u8,

    /// Bytes in a message; k, M and G are powers of 1024
    #[arg(short, long, value_name = "SIZE", default_value = "4096", value_parser = parse_message_size)]
    pub(crate) size: u32,

    /// Bytes of payload in a packet: 256, 512, 1024, 2048 or 4096; not above the port's active MTU
    #[arg(short, long, value_name = "BYTES", default_value = "1024", value_parser = parse_mtu)]
    pub(crate) mtu: Mtu,

    /// Connections
    #[arg(short = 'q', long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=MOST as i64))]
    pub(crate) num_qp: u32,

    /// Receive requests that the shared queue holds; at least one for each connection
    #[arg(short, long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rx_depth: u32,

    /// Messages in either direction, over all connections together
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) iters: u32,

    /// Service level; on Ethernet the priority of the VLAN tag
    #[arg(short = 'l', long, value_name = "SL", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..16))]
    pub(crate) sl: u8,

    /// Sleep until something completes (a completion channel) instead of polling without pause
    #[arg(short, long)]
    pub(crate) events: bool,

    /// Index of the GID to send from; show_gids lists them [default: on Ethernet the best, RoCE v2 with an IPv4 address first;
    /// on InfiniBand none]
    #[arg(short = 'g', long, value_name = "INDEX")]
    pub(crate) gid_idx: Option<u32>,

    /// Give up when the other side says nothing for so long; 0 waits for ever
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_timeout)]
    pub(crate) timeout: Timeout,
}

impl Arguments {
    /// What is said of the port.
    pub(crate) fn port_choice(&self) -> PortChoice {
        let &Self { ib_port, gid_idx, sl, mtu, size, .. } = self;
        PortChoice { ib_port, gid_idx, sl, mtu, size }
    }

    /// What the options have to do with each other.
    ///
    /// # Errors
    ///
    /// They contradict each other.
    pub(crate) fn check(&self) -> Result<()> {
        let Self { num_qp, rx_depth, .. } = self;
        if num_qp > rx_depth {
            bail!("--rx-depth {rx_depth} is too small for --num-qp {num_qp}: each connection needs a receive");
        }
        Ok(())
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
