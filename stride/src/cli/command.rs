//! The words of the command line, and the pages that are made of them.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;

use super::options::{Local, Server, Test};

/// How the program ends; `program::exit` has the numbers.
const EXIT_STATUS: &str = "\
Exit status:
  0    done
  1    failed for another reason than those below
  2    invalid arguments
  3    a limit (--min-gbps, --min-mpps, --max-p99) or the baseline (--compare) was missed
  4    peer unreachable, busy, incompatible or disconnected
  5    RDMA failed: queue pairs did not connect, a request failed, or --validate found other bytes
  130  ended by SIGINT (Ctrl-C), and 143 by SIGTERM";

/// A text below a help, followed by the exit statuses.
fn with_exit_status(text: &str) -> String {
    format!("{text}\n\n{EXIT_STATUS}")
}

/// What stands below the help of the program.
const EXAMPLES: &str = "\
Examples:
  stride-perf                                       serves any test, on this host
  stride-perf write bw HOST                         bandwidth of writes to it
  stride-perf write lat --latency ack -a HOST       latency of writes, of all sizes
  stride-perf write bw -a --loopback                a first look at a device, without a server
  stride-perf devices                               what there is to measure
  stride-perf self-test                             whether all of it works, on one device
Each command has help of its own: stride-perf write bw --help";

/// What stands below the help of the self-test.
const SELF_TEST: &str = "\
It takes some seconds. It fails if a part of what the device has fails, or if it has nothing of it.";

/// What stands below the help of a test.
const TEST_EXAMPLES: &str = "\
Examples:
  stride-perf write bw -d mlx5_0 -n 100000 -a --max-msg-size 8388608               a server
  stride-perf write bw -d mlx5_0 -n 100000 -a --max-msg-size 8388608 127.0.0.1     its client
  stride-perf write bw -q 4 --threads 4 -D 10s HOST      four threads, ten seconds of each size
  stride-perf write bw -d mlx5_0,mlx5_1 -D 10s HOST      over two ports at once
  stride-perf write bw -l 64 -t 4096 -s 64 HOST          as many messages as there can be
  stride-perf read bw --use-cuda 4 --remote-use-cuda 0 HOST
  stride-perf send lat -s 64,4K,1M --json run.json HOST
A server needs no options: the client's count, on both sides.
-d, -i, -x, --use-cuda, --huge-pages and --cpu are of the side where they are given.
Sizes and numbers have the suffixes k, K, M and G, powers of 1024.
Times have us, ms, s, m and h, and are seconds without.";

/// Bandwidth and latency of RDMA, in host and GPU memory.
///
/// Without a command: a server for any test.
#[derive(Debug, Parser)]
#[command(name = "stride-perf", version, after_help = with_exit_status(EXAMPLES), args_conflicts_with_subcommands = true, max_term_width = 120)]
pub(super) struct Program {
    #[command(subcommand)]
    pub(super) word: Option<Word>,
    #[command(flatten)]
    pub(super) server: Server,
}

/// The first word.
#[derive(Debug, Subcommand)]
pub(super) enum Word {
    /// RDMA writes.
    Write(Measured),
    /// RDMA reads.
    Read(Measured),
    /// Sends into receives.
    Send(Measured),
    /// Atomics of eight bytes.
    Atomic(Measured),
    /// Serves one test after another, whichever a client asks for.
    Server(Server),
    /// Tries every operation over every transport on a device, with both sides in this process, and checks what arrives.
    #[command(
        after_help = with_exit_status(SELF_TEST),
        mut_arg("device", |arg| arg.value_name("NAME").help("RDMA device; where it is left out, the first with a port that is up")),
        mut_arg("ib_port", |arg| arg.value_name("PORT").help("Port of the device, from 1 [default: the first that is up]")),
        mut_arg("dualport", |arg| arg.hide(true)),
        mut_arg("gid_index", |arg| {
            arg.value_name("N").help("Index in the port's table of GIDs; where it is left out, one is chosen")
        }),
        mut_arg("pkey_index", |arg| {
            arg.help("Index in the port's table of P_Keys, of the partition that queue pairs are in [default: 0]")
        }),
    )]
    SelfTest(Local),
    /// Lists devices, ports, GIDs and GPUs, and what each device can: transports, atomics, reads, on-demand paging, inline bytes.
    Devices,
    /// Draws runs that --json has written, or that perftest has printed, over each other.
    Plot(Plot),
    /// Prints what completes the options in a shell.
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Prints the manual page, or that of a command: `stride-perf man write bw`.
    Man {
        /// The command's words.
        #[arg(value_name = "COMMAND")]
        command: Vec<String>,
    },
}

/// What is measured.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct Measured {
    #[command(subcommand)]
    pub(super) measure: What,
}

/// The second word.
#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// Bandwidth and message rate.
    #[command(visible_alias = "bandwidth", after_help = with_exit_status(TEST_EXAMPLES))]
    Bw(Box<Test>),
    /// The time of a message.
    #[command(visible_alias = "latency", after_help = with_exit_status(TEST_EXAMPLES))]
    Lat(Box<Test>),
}

/// A plot.
#[derive(Debug, Args)]
pub(super) struct Plot {
    /// Runs that --json has written, or that a program of perftest has printed.
    #[arg(value_name = "RUN", required = true)]
    pub(super) runs: Vec<PathBuf>,
    /// The plot, as .svg or .png.
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(super) output: PathBuf,
}

/// Writes what completes the options in a shell.
///
/// # Errors
///
/// Those of `to`.
pub fn completions(shell: Shell, to: &mut dyn Write) -> io::Result<()> {
    let mut page = Vec::new();
    clap_complete::generate(shell, &mut Program::command(), "stride-perf", &mut page);
    to.write_all(&page)
}

/// Writes a manual page: that of the program, or of the command with these words.
///
/// # Errors
///
/// Those of `to`; `InvalidInput` where there is no such command.
pub fn man(words: &[String], to: &mut dyn Write) -> io::Result<()> {
    let mut program = Program::command();
    program.build();
    let mut command = &program;
    for word in words {
        command = command
            .find_subcommand(word)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("there is no command {word:?}")))?;
    }
    Man::new(command.clone()).render(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_the_options() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut page = Vec::new();
            completions(shell, &mut page).unwrap();
            assert!(String::from_utf8(page).unwrap().contains("post-list"), "{shell}");
        }
        let mut page = Vec::new();
        man(&["write".to_owned(), "bw".to_owned()], &mut page).unwrap();
        assert!(String::from_utf8(page).unwrap().contains("post\\-list"));
        man(&[], &mut Vec::new()).unwrap();
        assert!(man(&["fly".to_owned()], &mut Vec::new()).is_err());
    }
}
