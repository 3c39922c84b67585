//! Queue pairs and their attributes, their queues, and the threads that drive them.

use std::net::IpAddr;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{Transport, values};

/// Queue pairs, their queues, and the threads that drive them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Args)]
#[command(next_help_heading = "Queues")]
pub struct Queues {
    /// Queue pairs, of all threads together.
    #[arg(skip = 1_u32)]
    pub queue_pairs: u32,
    /// Threads of each side, with a completion queue each.
    #[arg(skip = 1_u32)]
    pub threads: u32,
    /// Sends in flight on a queue pair.
    #[arg(skip = 128_u32)]
    pub tx_depth: u32,
    /// Receives that wait on a queue pair.
    #[arg(short = 'r', long, value_name = "N", value_parser = values::count, default_value_t = Self::default().rx_depth)]
    pub rx_depth: u32,
    /// Messages that are posted together.
    #[arg(short = 'l', long, value_name = "N", value_parser = values::count, default_value_t = Self::default().post_list)]
    pub post_list: u32,
    /// Receives that are posted together, as messages use them [default: a quarter of --rx-depth].
    #[serde(default)]
    #[arg(long = "recv-post-list", value_name = "N", value_parser = values::count)]
    pub receive_list: Option<u32>,
    /// Of this many requests the last is signaled.
    #[arg(skip = 1_u32)]
    pub cq_moderation: u32,
    /// Each request whose message is above [`LARGE`](super::LARGE) is signaled as well: what a message is signaled with depends on its size
    /// alone.
    #[serde(default)]
    #[arg(skip)]
    pub is_each_large_signaled: bool,
    /// Messages of up to so many bytes are handed over in the request itself [default: 0 for bw; for lat 220, or 64
    /// or 0 where the device takes no more].
    #[serde(rename = "inline_bytes")]
    #[arg(id = "inline_bytes", short = 'I', long = "inline", value_name = "BYTES", value_parser = values::count)]
    pub inline: Option<u32>,
    /// Threads sleep until a completion comes, rather than poll.
    // The name in documents of earlier versions.
    #[serde(alias = "has_events")]
    #[arg(short = 'e', long = "events")]
    pub sleeps_on_events: bool,
}

impl Default for Queues {
    fn default() -> Self {
        Self {
            queue_pairs: 1,
            threads: 1,
            tx_depth: 128,
            rx_depth: 512,
            post_list: 1,
            receive_list: None,
            cq_moderation: 1,
            is_each_large_signaled: false,
            inline: None,
            sleeps_on_events: false,
        }
    }
}

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
    // The name in documents of earlier versions.
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
