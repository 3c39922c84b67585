//! Queue pairs, their queues, and the threads that drive them.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::values;

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
