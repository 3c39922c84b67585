//! Queue options whose defaults depend on other options.

use clap::Args;

use crate::plan::{Direction, values};

/// Queue options whose defaults depend on other options. The rest are in [`Queues`](crate::plan::Queues).
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
}

impl Load {
    pub(in crate::cli) fn direction(&self) -> Direction {
        match (self.bidirectional, self.reversed) {
            (true, _) => Direction::Both,
            (false, true) => Direction::Reversed,
            (false, false) => Direction::Forward,
        }
    }
}
