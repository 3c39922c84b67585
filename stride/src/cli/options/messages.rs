//! Workload options, and queue options whose defaults depend on them.

use clap::{Args, ValueEnum};

use crate::plan::values::{self, Length};
use crate::plan::{Direction, Semantics};

/// Options for the workload of a test.
#[derive(Debug, Args)]
#[command(next_help_heading = "Messages")]
pub(in crate::cli) struct Messages {
    /// Message size, or a list: 64,4K,1M [default: 64K for bw, 2 for lat].
    #[arg(short = 's', long, value_name = "BYTES", value_delimiter = ',', value_parser = values::number)]
    pub(in crate::cli) msg_size: Option<Vec<u64>>,
    /// Test all sizes from 2 bytes to 8M.
    #[arg(short = 'a', long)]
    pub(in crate::cli) all_sizes: bool,
    /// Smallest size of a sweep.
    #[arg(long, value_name = "BYTES", value_parser = values::number, hide_short_help = true)]
    pub(in crate::cli) min_msg_size: Option<u64>,
    /// Largest size of a sweep.
    #[arg(long, value_name = "BYTES", value_parser = values::number, hide_short_help = true)]
    pub(in crate::cli) max_msg_size: Option<u64>,
    /// Ratio of each size to the previous one [default: 2].
    #[arg(long, value_name = "FACTOR", value_parser = values::factor, hide_short_help = true)]
    pub(in crate::cli) step_factor: Option<f64>,
    /// Messages per size and queue pair [default: 5000 for bw, 1000 for lat].
    #[arg(short = 'n', long, value_name = "N", value_parser = values::number)]
    pub(in crate::cli) iters: Option<u64>,
    /// Measure each size for this time: 10, 500ms, 2m, forever.
    ///
    /// `forever` prints a row per --interval until Ctrl-C, then a row for the whole run, and exits with status 0. If
    /// files are to be written or limits to be checked, the test also ends in this way when the program that reads the
    /// rows closes the pipe (as in | head). With -b, each row counts the messages that the client sends; the last row
    /// counts both directions.
    #[arg(short = 'D', long, value_name = "TIME", value_parser = values::length)]
    pub(in crate::cli) duration: Option<Length>,
    /// Same as --duration forever.
    #[arg(long, conflicts_with_all = ["duration", "iters"], hide_short_help = true)]
    pub(in crate::cli) run_infinitely: bool,
    /// Warm-up before the measurement: a time with -D, else messages.
    ///
    /// [default with --duration: a tenth of it, at most 2s; otherwise: --tx-depth for bw, a tenth of --iters for lat]
    #[arg(long, value_name = "TIME|N", hide_short_help = true)]
    pub(in crate::cli) warm_up: Option<String>,
    /// Write or send with immediate data.
    #[arg(long, hide_short_help = true)]
    pub(in crate::cli) imm: bool,
    /// Atomic operation [default: fadd].
    ///
    /// fadd: fetch-and-add. cswap: compare-and-swap.
    #[arg(long, value_name = "WHICH", value_enum, hide_short_help = true)]
    pub(in crate::cli) atomic: Option<Atomic>,
    /// Latency to report: oneway, rtt or ack [default: see the man page].
    ///
    /// oneway: half of the time to the peer and back, as in perftest. rtt: the whole round trip. ack: the time from
    /// post to completion. At completion, the peer's NIC has accepted the message, but the peer's program may not see
    /// it yet. [default: oneway for write and send, ack for read, atomic, and plain writes with --use-cuda]
    #[arg(long, value_name = "WHICH", value_enum, hide_short_help = true)]
    pub(in crate::cli) latency: Option<Semantics>,
    /// Use perftest's defaults where they differ.
    ///
    /// There is no warm-up, or with --duration a warm-up of a quarter of that time (perftest also drops the same time
    /// at the end). The other values are --iters 1000 except for write bw, --recv-post-list 1, --cq-mod 100 for all
    /// sizes of a sweep and with --events, for send lat --inline 236 over RC, UC and XRC and --inline 188 over UD, and
    /// for lat over DC --inline 150. With --iters over UC and UD, --rx-depth is the number of messages, at most 16000.
    /// Options given on the command line take precedence. Other defaults are the same as perftest's in any case: queue
    /// depths, inline bytes of write lat, relaxed ordering, buffer layout. There are two exceptions: perftest has fewer
    /// inline bytes for devices other than those of Mellanox, and none for devices that it does not know; give --inline
    /// too. For send bw over UD, its messages have the size of the path MTU; give --msg-size too.
    #[arg(long, hide_short_help = true)]
    pub(in crate::cli) like_perftest: bool,
}

/// Queue options whose defaults depend on other options. [`Queues`](crate::plan::Queues) contains the other queue
/// options.
#[derive(Debug, Args)]
#[command(next_help_heading = "Queues")]
pub(in crate::cli) struct Load {
    /// Queue pairs, in total over all threads and ports [default: --threads].
    ///
    /// With several ports, perftest's -q is the number per port: -O -q 4 of perftest corresponds to -O -q 8 here.
    #[arg(short = 'q', long, value_name = "N", value_parser = values::count)]
    pub(in crate::cli) qp_count: Option<u32>,
    /// Threads per side, each with a completion queue [default: 1 per port].
    #[arg(long, value_name = "N", value_parser = values::count)]
    pub(in crate::cli) threads: Option<u32>,
    /// Messages in flight per queue pair [default: 128 for bw, 1 for lat].
    #[arg(short = 't', long, value_name = "N", value_parser = values::count)]
    pub(in crate::cli) tx_depth: Option<u32>,
    /// Request a completion every N messages [default: see the man page].
    ///
    /// [default: --post-list if given; otherwise 1 for messages above 8K, and 100 for others or --tx-depth if that is
    /// less; 1 for lat and for --transport srd, which supports no other value; with --like-perftest 1 if a single size
    /// above 8K is tested without --events, else 100]
    #[arg(short = 'Q', long, value_name = "N", value_parser = values::count, hide_short_help = true)]
    pub(in crate::cli) cq_mod: Option<u32>,
    /// Both sides send.
    #[arg(short = 'b', long)]
    pub(in crate::cli) bidirectional: bool,
    /// The server sends, the client responds.
    #[arg(long, conflicts_with = "bidirectional", hide_short_help = true)]
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

/// An atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Atomic {
    /// Fetch-and-add.
    Fadd,
    /// Compare-and-swap.
    Cswap,
}
