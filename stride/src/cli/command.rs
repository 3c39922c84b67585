//! The commands and their help.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, Command, Parser, Subcommand};

use super::options::{Local, Server, Test};
use super::{Shell, mesh};

/// Help text for the exit statuses, whose numbers [`Exit`](crate::program) defines.
const EXIT_STATUS: &str = "\
Exit status:
  0    done
  1    failed for another reason than those below
  2    invalid arguments
  3    a limit (--min-gbps, --min-mpps, --max-p99) or the baseline (--compare) was missed
  4    peer unreachable, busy, incompatible or disconnected
  5    RDMA failed: queue pairs did not connect, a request failed, or --validate found other bytes
  130  ended by SIGINT (Ctrl-C), and 143 by SIGTERM";

/// Appends the exit statuses to a help text.
fn with_exit_status(text: &str) -> String {
    format!("{text}\n\n{EXIT_STATUS}")
}

/// The examples that follow the help of the program.
const EXAMPLES: &str = "\
Examples:
  stride-perf                                       server for any test
  stride-perf write bw HOST                         bandwidth of writes to HOST
  stride-perf write lat --latency ack -a HOST       latency of writes, all sizes
  stride-perf write bw -a --loopback                both sides in one process
  stride-perf mesh --hosts h1,h2,h3,h4 write bw     every pair of many hosts
  stride-perf devices                               RDMA devices and GPUs of this host
  stride-perf self-test                             every operation and transport, checked
Each command has its own help: stride-perf write bw --help";

/// The text that follows the help of the self-test.
const SELF_TEST: &str = "\
Takes some seconds. Fails if a supported test fails, or if the device supports none.";

/// The examples that follow the help of a mesh.
const MESH: &str = "\
Examples:
  srun -N 8 --ntasks-per-node=1 stride-perf mesh write bw -s 1M -D 2s --json mesh.json
  mpirun -n 8 --map-by node stride-perf mesh send lat -s 64
  stride-perf mesh --hosts h1,h2,h3,h4 write bw -a
Start one process per host. The options of the test follow its words.";

/// The examples that follow the help of a test.
const TEST_EXAMPLES: &str = "\
Examples:
  stride-perf write bw -q 4 --threads 4 -D 10s HOST      four threads, ten seconds per size
  stride-perf write bw -d mlx5_0,mlx5_1 -D 10s HOST      two ports at once
  stride-perf write bw -l 64 -t 4096 -s 64 HOST          message rate
  stride-perf send lat -s 64,4K,1M --json run.json HOST
The client's options apply to both sides, except \"This side\": a server needs none.
Sizes and counts take k, K, M and G, powers of 1024; times take us, ms, s, m and h.";

/// The text that follows the brief help of a test.
const TEST_BRIEF: &str = "\
--help lists all options with examples; the manual page explains them: stride-perf man write bw";

/// Bandwidth and latency of RDMA, in host and GPU memory.
///
/// Without a command, stride-perf is a server for any test.
#[derive(Debug, Parser)]
#[command(name = "stride-perf", version, after_help = with_exit_status(EXAMPLES), args_conflicts_with_subcommands = true, max_term_width = 120)]
pub(super) struct Program {
    #[command(subcommand)]
    pub(super) word: Option<Word>,
    #[command(flatten)]
    pub(super) server: Server,
}

/// The operations that can be tested.
#[derive(Debug, Subcommand)]
pub(super) enum TestWord {
    /// RDMA writes.
    Write(Measured),
    /// RDMA reads.
    Read(Measured),
    /// Sends.
    Send(Measured),
    /// 8-byte atomics.
    Atomic(Measured),
    /// Messages of the trespass library, for comparison with raw verbs.
    Msg(Measured),
}

/// The arguments of `mesh`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct Mesh {
    #[command(subcommand)]
    pub(super) word: TestWord,
    #[command(flatten)]
    pub(super) options: mesh::Options,
}

/// The commands: the first word after the program's name.
#[derive(Debug, Subcommand)]
pub(super) enum Word {
    #[command(flatten)]
    Test(TestWord),
    /// Test every pair of many hosts, and name what is slow.
    #[command(after_help = MESH)]
    Mesh(Mesh),
    /// Serve clients, one test at a time.
    Server(Server),
    /// Test every operation and transport of a device, in one process, with data checked.
    #[command(
        after_help = with_exit_status(SELF_TEST),
        mut_arg("device", |arg| arg.value_name("NAME").help("RDMA device [default: the first with an active port]").long_help(None)),
        mut_arg("ib_port", |arg| arg.value_name("PORT").help("Port of the device, from 1 [default: the first active one]").long_help(None)),
        mut_arg("dualport", |arg| arg.hide(true)),
        mut_arg("gid_index", |arg| {
            arg.value_name("N").help("Index in the port's GID table [default: chosen]").long_help(None)
        }),
        mut_arg("pkey_index", |arg| arg.long_help(None)),
        mut_arg("dlid", |arg| arg.long_help(None)),
    )]
    SelfTest(Local),
    /// List devices, ports, GIDs and GPUs, and the capabilities of each device.
    Devices,
    /// Draw several runs into one plot: files from --json, or output of perftest.
    Plot(Plot),
    /// Make an HTML page of several runs: files from --json, or output of perftest.
    Report(Report),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page of the program or of a command.
    Man {
        /// The command's words.
        #[arg(value_name = "COMMAND")]
        command: Vec<String>,
    },
}

/// Selects the options that the brief help of a latency test shows; they differ from those of a bandwidth test.
fn brief_of_latency(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "latency" | "sleeps_on_events" => arg.hide_short_help(false),
        "bidirectional" | "qp_count" | "threads" | "tx_depth" | "post_list" => arg.hide_short_help(true),
        _ => arg,
    }
}

/// The arguments of an operation: the kind of test, and its options.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct Measured {
    #[command(subcommand)]
    pub(super) measure: What,
}

/// The kind of test, which is the second word of the command.
#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// Bandwidth and message rate.
    #[command(visible_alias = "bandwidth", after_help = TEST_BRIEF, after_long_help = with_exit_status(TEST_EXAMPLES))]
    Bw(Box<Test>),
    /// Latency.
    #[command(visible_alias = "latency", after_help = TEST_BRIEF, after_long_help = with_exit_status(TEST_EXAMPLES), mut_args(brief_of_latency))]
    Lat(Box<Test>),
}

/// The arguments of `plot`.
#[derive(Debug, Args)]
pub(super) struct Plot {
    /// Files written by --json, or output of perftest.
    #[arg(value_name = "RUN", required = true)]
    pub(super) runs: Vec<PathBuf>,
    /// Output file, .svg or .png.
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(super) output: PathBuf,
}

/// The arguments of `report`.
#[derive(Debug, Args)]
pub(super) struct Report {
    /// Files written by --json, or output of perftest.
    #[arg(value_name = "RUN", required = true)]
    pub(super) runs: Vec<PathBuf>,
    /// Output file, .html.
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(super) output: PathBuf,
}

/// Returns the command line as `--help` shows it: every option with one line of help. `-h` shows the most used options,
/// and the manual page the details.
pub(super) fn with_all_options(command: Command) -> Command {
    let about = command.get_long_about().or(command.get_about()).cloned().unwrap_or_default();
    let after = command.get_after_long_help().or(command.get_after_help()).cloned().unwrap_or_default();
    let brief = command.about(about).long_about(None).after_help(after).after_long_help(None);
    let with_one_line = |arg: Arg| {
        let values: Vec<_> = arg.get_possible_values().into_iter().map(|value| value.help(None)).collect();
        let arg = arg.hide_short_help(false).long_help(None);
        if values.is_empty() { arg } else { arg.value_parser(PossibleValuesParser::new(values)) }
    };
    brief.mut_args(with_one_line).mut_subcommands(with_all_options)
}
