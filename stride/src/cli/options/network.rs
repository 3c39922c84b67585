//! The queue pairs on the network.

use clap::{Args, ValueEnum};

use super::super::values;
use crate::plan::Transport;

/// The queue pairs on the network.
#[derive(Debug, Args)]
#[command(next_help_heading = "Network")]
pub(in crate::cli) struct Network {
    /// Service of the queue pairs [default: rc].
    #[arg(short = 'c', long, value_name = "WHICH", value_enum, ignore_case = true, visible_alias = "connection")]
    pub(in crate::cli) transport: Option<Service>,
    /// Bytes of payload in a packet: 256 to 4096 [default: the most that both ports can].
    #[arg(short = 'm', long, value_name = "BYTES", value_parser = values::count)]
    pub(in crate::cli) mtu: Option<u32>,
    /// An answer is waited for 4.096 us * 2^N, 0 is for ever [default: 14].
    #[arg(short = 'u', long, value_name = "N")]
    pub(in crate::cli) qp_timeout: Option<u8>,
    /// Service level [default: 0].
    #[arg(short = 'S', long, value_name = "N")]
    pub(in crate::cli) sl: Option<u8>,
    /// Traffic class, four times the DSCP [default: 0].
    #[arg(long, value_name = "N")]
    pub(in crate::cli) tclass: Option<u8>,
    /// Flow label of the GRH, of 20 bits, by which networks with several ways choose one: with RoCE v2 most devices make the UDP source
    /// port of it [default: 0].
    #[arg(long, value_name = "N", value_parser = values::hexadecimal)]
    pub(in crate::cli) flow_label: Option<u32>,
    /// The connection manager connects the queue pairs.
    #[arg(short = 'R', long)]
    pub(in crate::cli) rdma_cm: bool,
}

/// A service of queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagrams.
    Ud,
    /// Extended reliable connection.
    Xrc,
    /// Dynamic connections, of mlx5 devices.
    Dc,
    /// Scalable reliable datagrams, of EFA devices.
    Srd,
}

impl From<Service> for Transport {
    fn from(service: Service) -> Self {
        match service {
            Service::Rc => Self::Rc,
            Service::Uc => Self::Uc,
            Service::Ud => Self::Ud,
            Service::Xrc => Self::Xrc,
            Service::Dc => Self::Dc,
            Service::Srd => Self::Srd,
        }
    }
}
