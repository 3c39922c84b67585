//! What is to be measured, and where: what the command line says, checked, and the same for both sides.
//!
//! The client decides and sends its plan to the server, which adds what only it can know.

mod check;
pub mod cpus;
mod gpu;
mod operation;
mod run_length;
mod settings;
mod side_config;
pub mod size;
pub mod time;

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::check::{Contradiction, LONGEST, MOST_DEPTH, MOST_QUEUE_PAIRS, MOST_SAMPLES, MOST_THREADS, Room};
pub use self::gpu::{GpuName, GpuRegistration, NoGpuName, PciAddress};
pub use self::operation::{Measure, Operation, Semantics, Transport};
pub use self::run_length::RunLength;
pub use self::settings::{Given, Setting};
pub use self::side_config::{Memory, PortSelector, SideConfig};

/// The option that names sizes.
pub const NAMED: &str = "--msg-size";

/// The option that names the largest size of a sweep.
pub const SWEPT: &str = "--max-msg-size";

/// The word for every counter of a port.
pub const ALL_COUNTERS: &str = "all";
/// Where nobody says otherwise, a message of more bytes has a completion of its own.
pub const LARGE: u64 = 8192;

/// Messages of a latency, where nobody says how many.
pub const LATENCY_MESSAGES: u64 = 1000;

/// Messages of a bandwidth on each queue pair, likewise.
pub const BANDWIDTH_MESSAGES: u64 = 5000;

/// A test: the same operation at one size after another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What is done.
    pub operation: Operation,
    /// What of it is measured.
    pub measure: Measure,
    /// The service of the queue pairs.
    pub transport: Transport,
    /// Bytes of a message, one step for each.
    #[serde(rename = "sizes_bytes")]
    pub sizes: Vec<u64>,
    /// How much of it, at each size.
    pub amount: RunLength,
    /// The user ends it, with all that was measured so far; the amount is the longest time then.
    #[serde(default)]
    pub is_endless: bool,
    /// Queue pairs, of all threads together.
    pub queue_pairs: u32,
    /// Threads of each side, with a completion queue each.
    pub threads: u32,
    /// Sends under way on a queue pair.
    pub tx_depth: u32,
    /// Receives that wait on a queue pair.
    pub rx_depth: u32,
    /// Requests that are posted together.
    pub post_list: u32,
    /// Receives that are posted together, as messages use them; none is a quarter of those that wait.
    #[serde(default)]
    pub receive_list: Option<u32>,
    /// Of so many requests the last is signaled.
    pub cq_moderation: u32,
    /// But each whose message is above [`LARGE`]: what a message is signaled with depends on its size alone, not on those beside it.
    #[serde(default)]
    pub is_each_large_signaled: bool,
    /// Both sides send.
    pub is_bidirectional: bool,
    /// The server sends, reads or changes, and the client only answers.
    #[serde(default)]
    pub is_reversed: bool,
    /// Messages of up to so many bytes are handed over in the request itself; none is up to the tool.
    #[serde(rename = "inline_bytes")]
    pub inline: Option<u32>,
    /// Bytes of payload in a packet; none is the most that both ports can.
    #[serde(rename = "mtu_bytes")]
    pub mtu: Option<u32>,
    /// `timeout` of the queue pairs: 4.096 us * 2^n.
    pub qp_timeout: u8,
    /// Service level.
    pub service_level: u8,
    /// Traffic class, of which the upper six bits are the DSCP.
    pub traffic_class: u8,
    /// Flow label of the header that GIDs stand in, of 20 bits.
    #[serde(default)]
    pub flow_label: u32,
    /// Whether the device may write in any order.
    pub is_relaxed: bool,
    /// Pages are not pinned: the device asks for them as it uses them.
    #[serde(default)]
    pub is_on_demand: bool,
    /// Each queue pair has memory regions of its own, rather than a part of its thread's.
    #[serde(default)]
    pub has_own_regions: bool,
    /// Threads sleep until a completion event comes, instead of polling.
    #[serde(alias = "has_events")]
    pub sleeps_on_events: bool,
    /// What lies in memory after each size is compared with what was sent.
    pub is_validated: bool,
    /// For so long a message of a latency is waited for that may have been lost.
    #[serde(rename = "timeout_seconds", with = "run_length::seconds", default = "run_length::half_a_minute")]
    pub timeout: Duration,
    /// Gigabits a second that the senders do not exceed.
    #[serde(rename = "rate_limit_gigabits_per_second")]
    pub rate_limit: Option<f64>,
    /// Messages of a thread that go out at once where the rate is limited; none is one.
    #[serde(default)]
    pub burst_size: Option<u32>,
    /// How long who measures a latency waits between a message and the next; none is not at all.
    #[serde(rename = "gap_seconds", with = "run_length::maybe_seconds", default)]
    pub gap: Option<Duration>,
    /// The length of the intervals that a bandwidth is told of; none is such that there are ten or more.
    #[serde(rename = "interval_seconds", with = "run_length::maybe_seconds")]
    pub interval: Option<Duration>,
    /// Counters of the ports whose changes are told at each size, or `all`.
    #[serde(default)]
    pub counters: Vec<String>,
    /// The connection manager connects the queue pairs.
    #[serde(alias = "by_address")]
    pub uses_rdma_cm: bool,
    /// The server's address then, as the client has reached it over TCP; none where both sides are in one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Where the client stands.
    pub client: SideConfig,
    /// Where the server stands, as far as the client says so.
    pub server: SideConfig,
}

impl Plan {
    /// Ports of each side. The first of the queue pairs, and of the threads, are at the first; all have as many.
    pub fn ports(&self) -> u32 {
        u32::try_from(self.client.count()).unwrap_or(u32::MAX)
    }

    /// Of so many requests of this size the last is signaled.
    pub fn moderation(&self, size: u64) -> u32 {
        if self.is_each_large_signaled && size > LARGE { 1 } else { self.cq_moderation }
    }
}

impl Default for Plan {
    /// Writes of 64 KiB with the default of every other option.
    fn default() -> Self {
        Self {
            operation: Operation::Write,
            measure: Measure::Bandwidth,
            transport: Transport::Rc,
            sizes: vec![64 << 10],
            amount: RunLength::Messages { count: 5000, warm_up: 128 },
            is_endless: false,
            queue_pairs: 1,
            threads: 1,
            tx_depth: 128,
            rx_depth: 512,
            post_list: 1,
            receive_list: None,
            cq_moderation: 1,
            is_each_large_signaled: false,
            is_bidirectional: false,
            is_reversed: false,
            inline: None,
            mtu: None,
            qp_timeout: 14,
            service_level: 0,
            traffic_class: 0,
            flow_label: 0,
            is_relaxed: true,
            is_on_demand: false,
            has_own_regions: false,
            sleeps_on_events: false,
            is_validated: false,
            timeout: run_length::half_a_minute(),
            rate_limit: None,
            burst_size: None,
            gap: None,
            interval: None,
            counters: Vec::new(),
            uses_rdma_cm: false,
            address: None,
            client: SideConfig::default(),
            server: SideConfig::default(),
        }
    }
}
