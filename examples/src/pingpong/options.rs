//! The options of the ping-pongs.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use sideway::ibverbs::device_context::Mtu;

use crate::exchange::DEFAULT_PORT;
use crate::options::{parse_message_size, parse_mtu, parse_timeout};
use crate::{PortChoice, Timeout};

// The two sides.
#[derive(Clone, Debug, Args)]
#[expect(missing_docs, reason = "clap would print the text as the description of the program")]
pub struct SideOptions {
    /// Host of the server, as a name or an address; without it, this program is the server
    pub server: Option<String>,

    /// TCP port of the control connection
    #[arg(short, long, default_value_t = DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,

    #[command(flatten)]
    pub port_choice: PortChoice,

    /// Service level; on Ethernet the priority of the VLAN tag
    #[arg(short = 'l', long, value_name = "SL", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..16))]
    pub sl: u8,
}

// The messages of a connection.
#[derive(Clone, Copy, Debug, Args)]
#[expect(missing_docs, reason = "clap would print the text as the description of the program")]
pub struct MessageOptions {
    /// Bytes in a message; k, M and G are powers of 1024
    #[arg(short, long, value_name = "SIZE", default_value = "4096", value_parser = parse_message_size)]
    pub size: u32,

    /// Path MTU, 256 to 4096 bytes, at most the port's active MTU
    #[arg(short, long, value_name = "BYTES", default_value = "1024", value_parser = parse_mtu)]
    pub mtu: Mtu,
}

// Sending and receiving.
#[derive(Clone, Debug, Args)]
#[expect(missing_docs, reason = "clap would print the text as the description of the program")]
pub struct RunOptions {
    /// Number of receives that are kept posted
    #[arg(short, long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    pub rx_depth: u32,

    /// Messages in either direction
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub iters: u32,

    /// Sleep until a completion event instead of polling
    #[arg(short, long)]
    pub events: bool,

    /// Check every byte; give it on both sides (the times include the check)
    #[arg(short = 'c', long)]
    pub chk: bool,

    /// Print the time between messages in device cycles; implies --cq extended
    #[arg(short = 't', long)]
    pub ts: bool,

    /// Post with ibv_wr_send; same as --qp extended
    #[arg(short = 'N', long)]
    pub new_send: bool,

    /// Polling verbs: ibv_poll_cq, ibv_start_poll, or the best that work
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Kind::Generic)]
    pub cq: Kind,

    /// Posting verbs: ibv_post_send, ibv_wr_start, or the best that work
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Kind::Generic)]
    pub qp: Kind,

    /// Limit of each wait for the peer; 0 = no limit
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_timeout)]
    pub timeout: Timeout,
}

impl RunOptions {
    /// Checks that no two options conflict.
    ///
    /// # Errors
    ///
    /// Two options conflict.
    pub fn check(&self) -> Result<()> {
        self.cq_kind()?;
        self.qp_kind().map(drop)
    }

    /// The kind of completion queue.
    pub(super) fn cq_kind(&self) -> Result<Kind> {
        match (self.ts, self.cq) {
            (true, Kind::Basic) => bail!("--ts requires an extended completion queue; leave out --cq basic"),
            (true, _) => Ok(Kind::Extended),
            (false, kind) => Ok(kind),
        }
    }

    /// The kind of queue pair.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn qp_kind(&self) -> Result<Kind> {
        match (self.new_send, self.qp) {
            (true, Kind::Basic) => bail!("--new-send requires an extended queue pair; leave out --qp basic"),
            (true, _) => Ok(Kind::Extended),
            (false, kind) => Ok(kind),
        }
    }
}

/// The verbs to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// The basic verbs, which every device has
    Basic,
    /// The extended verbs
    Extended,
    /// The extended verbs if they work on the device, otherwise the basic ones
    Generic,
}
