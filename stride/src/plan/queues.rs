//! The queue pairs of a test, their attributes and queues, and the threads that drive them.

use std::net::IpAddr;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{Transport, values};

/// The number of queue pairs, the depths of their queues, and the threads that drive them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Args)]
#[command(next_help_heading = "Queues")]
pub struct Queues {
    /// Number of queue pairs, in total over all threads.
    #[arg(skip = 1_u32)]
    pub queue_pairs: u32,
    /// Number of threads per side, each of which has a completion queue.
    #[arg(skip = 1_u32)]
    pub threads: u32,
    /// Number of sends in flight per queue pair.
    #[arg(skip = 128_u32)]
    pub tx_depth: u32,
    /// Receives posted per queue pair.
    #[arg(short = 'r', long, value_name = "N", value_parser = values::count, default_value_t = Self::default().rx_depth, hide_short_help = true)]
    pub rx_depth: u32,
    /// Messages posted together.
    #[arg(short = 'l', long, value_name = "N", value_parser = values::count, default_value_t = Self::default().post_list)]
    pub post_list: u32,
    /// Receives posted together [default: a quarter of --rx-depth].
    #[serde(default)]
    #[arg(long = "recv-post-list", value_name = "N", value_parser = values::count, hide_short_help = true)]
    pub receive_list: Option<u32>,
    /// Number of requests that are posted for each completion.
    #[arg(skip = 1_u32)]
    pub cq_moderation: u32,
    /// Whether each message above [`LARGE`](super::LARGE) also requests a completion. In that case, how often
    /// completions are requested depends on the message size alone.
    #[serde(default)]
    #[arg(skip)]
    pub is_each_large_signaled: bool,
    /// Send messages of up to this size inline [default: 0 for bw, up to 220 for lat].
    ///
    /// For lat, the default is the largest of 220, 64 and 0 that the device supports.
    #[serde(rename = "inline_bytes")]
    #[arg(id = "inline_bytes", short = 'I', long = "inline", value_name = "BYTES", value_parser = values::count, hide_short_help = true)]
    pub inline: Option<u32>,
    /// Sleep until a completion event instead of polling.
    ///
    /// Each latency includes the wake-up of the thread. The column CPU shows how much processor time sleeping saves. A
    /// plain write raises no event at its destination, so its one-way and round-trip latency cannot be measured with
    /// this option.
    // The alias is the name of this member in files of earlier versions.
    #[serde(alias = "has_events")]
    #[arg(short = 'e', long = "events", hide_short_help = true)]
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
    /// Transport.
    ///
    /// dc requires mlx5 devices (libmlx5) and srd requires EFA devices (libefa) on both sides; neither works with
    /// --rdma-cm or --odp.
    #[arg(
        short = 'c',
        long,
        value_name = "WHICH",
        value_enum,
        ignore_case = true,
        alias = "connection",
        default_value_t = Self::default().transport
    )]
    pub transport: Transport,
    /// Path MTU, 256 to 4096 [default: the largest both ports support].
    #[serde(rename = "mtu_bytes")]
    #[arg(id = "mtu_bytes", short = 'm', long = "mtu", value_name = "BYTES", value_parser = values::count, hide_short_help = true)]
    pub mtu: Option<u32>,
    /// Local ACK timeout, 4.096 us x 2^N; 0 = infinite.
    #[arg(short = 'u', long, value_name = "N", default_value_t = Self::default().qp_timeout, hide_short_help = true)]
    pub qp_timeout: u8,
    /// Service level.
    #[arg(short = 'S', long = "sl", value_name = "N", default_value_t = Self::default().service_level, hide_short_help = true)]
    pub service_level: u8,
    /// Traffic class: 4 x DSCP.
    #[arg(long = "tclass", value_name = "N", default_value_t = Self::default().traffic_class, hide_short_help = true)]
    pub traffic_class: u8,
    /// Flow label of the GRH, 20 bits.
    ///
    /// With RoCE v2, most devices derive the UDP source port from the flow label; multipath networks choose a path by
    /// this port.
    #[serde(default)]
    #[arg(long, value_name = "N", value_parser = values::hexadecimal, default_value_t = Self::default().flow_label, hide_short_help = true)]
    pub flow_label: u32,
    /// Connect queue pairs through the connection manager (librdmacm).
    ///
    /// The server listens on the address by which the client reached it, at a port chosen by the system; the client
    /// opens one connection per queue pair. That address selects the device, so it must belong to the network interface
    /// of an RDMA device. If --device names a device that does not have this address, it is rejected. With XRC, both
    /// directions use one connection. UC and XRC are supported, and --mtu, --sl, --tclass, --flow-label and
    /// --qp-timeout have their usual effect. Several ports, --pkey-index and --dlid are not supported. iWARP devices
    /// require -R, and support only RC.
    // The alias is the name of this member in files of earlier versions.
    #[serde(alias = "by_address")]
    #[arg(short = 'R', long = "rdma-cm")]
    pub uses_rdma_cm: bool,
    /// The address of the server by which the client reached it over TCP, for use with librdmacm. The address is `None`
    /// if both sides are in one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(skip)]
    pub address: Option<IpAddr>,
    /// Whether the client's device is an iWARP device, so that the server also has to use an iWARP device.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[arg(skip)]
    pub is_iwarp: bool,
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
            is_iwarp: false,
        }
    }
}
