//! Queues, and how they are kept full.

use std::time::Duration;

use clap::Args;

use super::super::values;

/// Queues, and how they are kept full.
#[derive(Debug, Args)]
#[command(next_help_heading = "Queues")]
pub(in crate::cli) struct Load {
    /// Queue pairs of all threads together, on all ports [default: --threads].
    #[arg(short = 'q', long, value_name = "N", value_parser = values::count)]
    pub(in crate::cli) qp_count: Option<u32>,
    /// Threads of each side, with a completion queue each [default: 1 for each port].
    #[arg(long, value_name = "N", value_parser = values::count)]
    pub(in crate::cli) threads: Option<u32>,
    /// Messages under way on a queue pair [default: 128 for bw, 1 for lat].
    #[arg(short = 't', long, value_name = "N", value_parser = values::count)]
    pub(in crate::cli) tx_depth: Option<u32>,
    /// Receives that wait on a queue pair [default: 512].
    #[arg(short = 'r', long, value_name = "N", value_parser = values::count)]
    pub(in crate::cli) rx_depth: Option<u32>,
    /// Messages that are posted together [default: 1].
    #[arg(short = 'l', long, value_name = "N", value_parser = values::count)]
    pub(in crate::cli) post_list: Option<u32>,
    /// Receives that are posted together, as messages use them [default: a quarter of --rx-depth].
    #[arg(long, value_name = "N", value_parser = values::count)]
    pub(in crate::cli) recv_post_list: Option<u32>,
    /// Of so many messages the last has a completion [default: --post-list where it is given; else 1 for messages above 8K, and
    /// 100 for others, or --tx-depth where that is less; 1 for lat, and for --transport srd, which has no other; with --like-perftest 1
    /// where all sizes are above 8K and there is no sweep, and else 100 for all].
    #[arg(short = 'Q', long, value_name = "N", value_parser = values::count)]
    pub(in crate::cli) cq_mod: Option<u32>,
    /// Both sides send.
    #[arg(short = 'b', long)]
    pub(in crate::cli) bidirectional: bool,
    /// The server sends, and the client only answers: the other direction, without going to the other machine.
    #[arg(long, conflicts_with = "bidirectional")]
    pub(in crate::cli) reversed: bool,
    /// Messages of up to so many bytes are handed over in the request itself [default: 0 for bw; for lat 220, or 64
    /// or 0 where the device takes no more].
    #[arg(short = 'I', long, value_name = "BYTES", value_parser = values::count)]
    pub(in crate::cli) inline: Option<u32>,
    /// Threads sleep until a completion comes, rather than poll.
    #[arg(short = 'e', long)]
    pub(in crate::cli) events: bool,
    /// The device writes to memory in order (PCIe); it always does where a latency watches memory.
    #[arg(long)]
    pub(in crate::cli) no_relaxed_ordering: bool,
    /// Memory is not pinned: the devices of both sides ask for its pages as they use them (on-demand paging).
    #[arg(long)]
    pub(in crate::cli) odp: bool,
    /// Each queue pair has memory regions of its own, with keys of their own, rather than a part of those of its thread.
    #[arg(long)]
    pub(in crate::cli) mr_per_qp: bool,
    /// Gigabits a second that the senders of a side do not exceed.
    #[arg(long, value_name = "GBPS", value_parser = values::positive)]
    pub(in crate::cli) rate_limit: Option<f64>,
    /// With --rate-limit: so many messages of a thread go out at once, and then none until as many are due [default: 1].
    #[arg(long, value_name = "N", value_parser = values::count)]
    pub(in crate::cli) burst_size: Option<u32>,
    /// With lat: the pause between a message and the next, which counts for neither; microseconds, or with a unit, such as 1ms.
    #[arg(long, value_name = "TIME", value_parser = values::microseconds, visible_alias = "latency-gap")]
    pub(in crate::cli) gap: Option<Duration>,
    /// Length of the intervals of which the slowest, middle and fastest are told. Each is told as it is over, where it is of 100ms or more,
    /// on a terminal, with --json-stream and with -D forever; of lat that alone [default: by the length of the run and its completions].
    #[arg(long, value_name = "SECONDS", value_parser = values::duration)]
    pub(in crate::cli) interval: Option<Duration>,
}
