//! What is sent, how much of it, and the queues as far as their defaults depend on that.

use clap::{Args, ValueEnum};

use crate::plan::values::{self, Length};
use crate::plan::{Direction, Semantics};

/// What is sent, and how much of it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Messages")]
pub(in crate::cli) struct Messages {
    /// Bytes of a message, or several such numbers: 64,4K,1M [default: 64K for bw, 2 for lat].
    #[arg(short = 's', long, value_name = "BYTES", value_delimiter = ',', value_parser = values::number)]
    pub(in crate::cli) msg_size: Option<Vec<u64>>,
    /// One size after another, from 2 bytes to 8M.
    #[arg(short = 'a', long)]
    pub(in crate::cli) all_sizes: bool,
    /// The first of all sizes.
    #[arg(long, value_name = "BYTES", value_parser = values::number)]
    pub(in crate::cli) min_msg_size: Option<u64>,
    /// The last of all sizes.
    #[arg(long, value_name = "BYTES", value_parser = values::number)]
    pub(in crate::cli) max_msg_size: Option<u64>,
    /// Each of all sizes is so many times the one before it [default: 2].
    #[arg(long, value_name = "FACTOR", value_parser = values::factor)]
    pub(in crate::cli) step_factor: Option<f64>,
    /// Messages of each size on each queue pair [default: 5000 for bw, 1000 for lat].
    #[arg(short = 'n', long, value_name = "N", value_parser = values::number)]
    pub(in crate::cli) iters: Option<u64>,
    /// Time of each size, rather than a number of messages: seconds, or with a unit, such as 500ms, 10s, 2m; or forever, which Ctrl-C
    /// ends with what was measured until then.
    #[arg(short = 'D', long, value_name = "TIME", value_parser = values::length)]
    pub(in crate::cli) duration: Option<Length>,
    /// The same as --duration forever.
    #[arg(long, conflicts_with_all = ["duration", "iters"])]
    pub(in crate::cli) run_infinitely: bool,
    /// What is done before and does not count: with --duration a time [default: a tenth of it, 2s at most], else a number of messages
    /// [default: --tx-depth for bw, a tenth of --iters for lat].
    #[arg(long, value_name = "TIME|N")]
    pub(in crate::cli) warm_up: Option<String>,
    /// Write and send with an immediate, which tells the other side of each message.
    #[arg(long)]
    pub(in crate::cli) imm: bool,
    /// Which atomic [default: fadd].
    #[arg(long, value_name = "WHICH", value_enum)]
    pub(in crate::cli) atomic: Option<Atomic>,
    /// Which time a latency is: oneway is half of a message and its answer, rtt all of it, ack from the post to the completion, of
    /// which an acknowledgement says that the other NIC has taken the data and not that its memory has it [default: oneway for write
    /// and send, ack for read, atomic, and plain writes with --use-cuda].
    #[arg(long, value_name = "WHICH", value_enum)]
    pub(in crate::cli) latency: Option<Semantics>,
    /// What is not given is as perftest has it, also where it is otherwise here: no --warm-up, or a quarter of --duration; 1000 --iters
    /// but for bw of write; --recv-post-list 1; --inline 236 for lat of send over RC and UC, and 188 over UD. What it sets is said.
    #[arg(long)]
    pub(in crate::cli) like_perftest: bool,
}

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

/// An atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Atomic {
    /// Fetch-and-add.
    Fadd,
    /// Compare-and-swap.
    Cswap,
}
