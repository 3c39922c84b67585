//! The options that all ping-pongs have. Between the two groups stands what is sent: that of those with connections, or a
//! program's own.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use sideway::ibverbs::device_context::Mtu;

use crate::Timeout;
use crate::exchange::DEFAULT_PORT;
use crate::units::{parse_message_size, parse_mtu, parse_timeout};

// Where the two sides are.
#[derive(Clone, Debug, Args)]
#[expect(missing_docs, reason = "clap would take the words for those of the program")]
pub struct Place {
    /// The host that the server runs on, as a name or an address; none makes this program the server
    pub server: Option<String>,

    /// TCP port on which the two programs find each other
    #[arg(short, long, default_value_t = DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,

    /// RDMA device, such as mlx5_0 [default: the first with an active port]
    #[arg(short = 'd', long, value_name = "DEVICE")]
    pub ib_dev: Option<String>,

    /// Port of the device, from 1
    #[arg(short = 'i', long, value_name = "PORT", default_value_t = 1)]
    pub ib_port: u8,

    /// Service level; on Ethernet the priority of the VLAN tag
    #[arg(short = 'l', long, value_name = "SL", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..16))]
    pub sl: u8,

    /// Index of the GID to send from; show_gids lists them [default: on Ethernet the best, RoCE v2 with an IPv4 address first;
    /// on InfiniBand none]
    #[arg(short = 'g', long, value_name = "INDEX")]
    pub gid_idx: Option<u32>,
}

// What is sent over a connection.
#[derive(Clone, Copy, Debug, Args)]
#[expect(missing_docs, reason = "clap would take the words for those of the program")]
pub struct Message {
    /// Bytes in a message; k, M and G are powers of 1024
    #[arg(short, long, value_name = "SIZE", default_value = "4096", value_parser = parse_message_size)]
    pub size: u32,

    /// Bytes of payload in a packet: 256, 512, 1024, 2048 or 4096; not above the port's active MTU
    #[arg(short, long, value_name = "BYTES", default_value = "1024", value_parser = parse_mtu)]
    pub mtu: Mtu,
}

// How it is played.
#[derive(Clone, Debug, Args)]
#[expect(missing_docs, reason = "clap would take the words for those of the program")]
pub struct Play {
    /// Receive requests that are posted at a time
    #[arg(short, long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    pub rx_depth: u32,

    /// Messages in either direction
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub iters: u32,

    /// Sleep until something completes (a completion channel) instead of polling without pause
    #[arg(short, long)]
    pub events: bool,

    /// Fill every message with a pattern of its own and check every byte that arrives. Both sides must have it; the times then
    /// include the work
    #[arg(short = 'c', long)]
    pub chk: bool,

    /// Read the device's clock for every completion, where the device can, and tell the time between messages in its cycles;
    /// implies --cq extended
    #[arg(short = 't', long)]
    pub ts: bool,

    /// Post by ibv_wr_start, ibv_wr_send, ...: the same as --qp extended
    #[arg(short = 'N', long)]
    pub new_send: bool,

    /// The verbs to poll with: basic is ibv_poll_cq, extended ibv_start_poll, generic the best that the device does rightly
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Kind::Generic)]
    pub cq: Kind,

    /// The verbs to post with: basic is ibv_post_send, extended ibv_wr_start, generic the best that the device does rightly
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Kind::Generic)]
    pub qp: Kind,

    /// Give up when the other side says nothing for so long; 0 waits for ever
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_timeout)]
    pub timeout: Timeout,
}

impl Play {
    /// Whether the options agree.
    ///
    /// # Errors
    ///
    /// Which ask for the contrary of each other.
    pub fn check(&self) -> Result<()> {
        self.cq_kind()?;
        self.qp_kind().map(drop)
    }

    /// The kind of completion queue, with what the other options ask of it.
    pub(super) fn cq_kind(&self) -> Result<Kind> {
        match (self.ts, self.cq) {
            (true, Kind::Basic) => {
                bail!("--ts needs an extended completion queue, and --cq basic asks for none")
            }
            (true, _) => Ok(Kind::Extended),
            (false, kind) => Ok(kind),
        }
    }

    /// The kind of queue pair, with what the other options ask of it.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn qp_kind(&self) -> Result<Kind> {
        match (self.new_send, self.qp) {
            (true, Kind::Basic) => bail!("--new-send asks for an extended queue pair, and --qp basic for none"),
            (true, _) => Ok(Kind::Extended),
            (false, kind) => Ok(kind),
        }
    }
}

/// Which verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Those that every device has
    Basic,
    /// The later ones
    Extended,
    /// The extended ones where the device does them rightly, else the basic ones
    Generic,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        play: Play,
    }

    fn play(options: &[&str]) -> Play {
        Arguments::try_parse_from(["pingpong"].iter().chain(options)).unwrap().play
    }

    #[test]
    fn tcp_port_zero_is_refused() {
        assert!(Arguments::try_parse_from(["pingpong", "-p", "0"]).is_err());
        assert!(Arguments::try_parse_from(["pingpong", "-p", "65536"]).is_err());
        assert_eq!(Arguments::try_parse_from(["pingpong", "-p", "65535"]).unwrap().place.port, 65535);
    }

    #[test]
    fn options_that_ask_for_the_same_agree_and_others_are_told() {
        let kinds = |options: &[&str]| (play(options).cq_kind().unwrap(), play(options).qp_kind().unwrap());
        assert_eq!(kinds(&[]), (Kind::Generic, Kind::Generic));
        assert_eq!(kinds(&["-t"]), (Kind::Extended, Kind::Generic));
        assert_eq!(kinds(&["-N", "--cq", "basic"]), (Kind::Basic, Kind::Extended));
        let error = play(&["-t", "--cq", "basic"]).cq_kind().unwrap_err().to_string();
        assert!(error.contains("--ts needs an extended completion queue"), "{error}");
        let error = play(&["-N", "--qp", "basic"]).qp_kind().unwrap_err().to_string();
        assert!(error.contains("--new-send asks for an extended queue pair"), "{error}");
    }
}
