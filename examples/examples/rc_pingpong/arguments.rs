//! The command line.

use clap::{Parser, ValueEnum};
use sideway::ibverbs::device_context::Mtu;
use sideway_examples::Timeout;
use sideway_examples::exchange::DEFAULT_PORT;
use sideway_examples::pingpong::PortChoice;
use sideway_examples::units::{parse_message_size, parse_mtu, parse_timeout};

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
#[derive(Clone, Debug, Parser)]
#[command(name = "rc_pingpong", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
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

    /// Receive requests that are posted at a time
    #[arg(short, long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rx_depth: u32,

    /// Messages in either direction
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

    /// Fill every message with a pattern of its own and check every byte that arrives. Both sides must have it; the times then
    /// include the work
    #[arg(short = 'c', long)]
    pub(crate) chk: bool,

    /// Read the device's clock for every completion, where the device can, and tell the time between messages in its cycles;
    /// implies --cq extended
    #[arg(short = 't', long)]
    pub(crate) ts: bool,

    /// Post by ibv_wr_start, ibv_wr_send, ...: the same as --qp extended
    #[arg(short = 'N', long)]
    pub(crate) new_send: bool,

    /// The verbs to poll with: basic is ibv_poll_cq, extended ibv_start_poll, generic the best that the device does rightly
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Kind::Generic)]
    pub(crate) cq: Kind,

    /// The verbs to post with: basic is ibv_post_send, extended ibv_wr_start, generic the best that the device does rightly
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Kind::Generic)]
    pub(crate) qp: Kind,

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

    /// The kind of completion queue, with what the other options ask of it.
    ///
    /// # Errors
    ///
    /// They contradict each other.
    pub(crate) fn cq_kind(&self) -> anyhow::Result<Kind> {
        match (self.ts, self.cq) {
            (true, Kind::Basic) => {
                anyhow::bail!("--ts needs an extended completion queue, and --cq basic asks for none")
            }
            (true, _) => Ok(Kind::Extended),
            (false, kind) => Ok(kind),
        }
    }

    /// The kind of queue pair, with what the other options ask of it.
    ///
    /// # Errors
    ///
    /// They contradict each other.
    pub(crate) fn qp_kind(&self) -> anyhow::Result<Kind> {
        match (self.new_send, self.qp) {
            (true, Kind::Basic) => anyhow::bail!("--new-send asks for an extended queue pair, and --qp basic for none"),
            (true, _) => Ok(Kind::Extended),
            (false, kind) => Ok(kind),
        }
    }
}

/// Which verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Those that every device has
    Basic,
    /// The later ones
    Extended,
    /// The extended ones where the device does them rightly, else the basic ones
    Generic,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_port_zero_is_refused() {
        assert!(Arguments::try_parse_from(["rc_pingpong", "-p", "0"]).is_err());
        assert!(Arguments::try_parse_from(["rc_pingpong", "-p", "65536"]).is_err());
        assert_eq!(Arguments::try_parse_from(["rc_pingpong", "-p", "65535"]).unwrap().port, 65535);
    }
}
