//! Attributes of the queue pairs.

use std::net::IpAddr;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{Transport, values};

/// Attributes of the queue pairs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Args)]
#[command(next_help_heading = "Network")]
pub struct QpAttributes {
    /// Service of the queue pairs.
    #[arg(
        short = 'c',
        long,
        value_name = "WHICH",
        value_enum,
        ignore_case = true,
        visible_alias = "connection",
        default_value_t = Self::default().transport
    )]
    pub transport: Transport,
    /// Bytes of payload in a packet: 256 to 4096 [default: the most that both ports can].
    #[serde(rename = "mtu_bytes")]
    #[arg(id = "mtu_bytes", short = 'm', long = "mtu", value_name = "BYTES", value_parser = values::count)]
    pub mtu: Option<u32>,
    /// An answer is waited for 4.096 us * 2^N, 0 is for ever.
    #[arg(short = 'u', long, value_name = "N", default_value_t = Self::default().qp_timeout)]
    pub qp_timeout: u8,
    /// Service level.
    #[arg(short = 'S', long = "sl", value_name = "N", default_value_t = Self::default().service_level)]
    pub service_level: u8,
    /// Traffic class, four times the DSCP.
    #[arg(long = "tclass", value_name = "N", default_value_t = Self::default().traffic_class)]
    pub traffic_class: u8,
    /// Flow label of the GRH, of 20 bits, by which networks with several ways choose one: with RoCE v2 most devices make the UDP source
    /// port of it.
    #[serde(default)]
    #[arg(long, value_name = "N", value_parser = values::hexadecimal, default_value_t = Self::default().flow_label)]
    pub flow_label: u32,
    /// The connection manager connects the queue pairs.
    #[serde(alias = "by_address")]
    #[arg(short = 'R', long = "rdma-cm")]
    pub uses_rdma_cm: bool,
    /// The server's address then, as the client has reached it over TCP; none where both sides are in one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(skip)]
    pub address: Option<IpAddr>,
}

impl Default for QpAttributes {
    fn default() -> Self {
        Self {
            transport: Transport::Rc,
            mtu: None,
            qp_timeout: 14,
            service_level: 0,
            traffic_class: 0,
            flow_label: 0,
            uses_rdma_cm: false,
            address: None,
        }
    }
}
