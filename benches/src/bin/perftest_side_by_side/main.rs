//! Runs the programs of perftest and stride-perf alternately, on one device with the same settings, and compares their
//! results at each size.
//!
//! On a machine with other work, the results of one run vary. The programs therefore alternate, their order changes
//! each round, and the output is the median of all rounds.

mod pair;
mod program;
mod report;
mod test;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;

use self::pair::{Pair, Preload, Settings};
use self::report::{Report, Which};
use self::test::Test;

/// Compare stride-perf with perftest, size by size, on one device
#[derive(Clone, Debug, Parser)]
#[command(name = "perftest_side_by_side", version, max_term_width = 110)]
struct Arguments {
    /// Device of both sides
    #[arg(short, long, default_value = "soft0")]
    device: String,

    /// GID index
    #[arg(short = 'x', long, value_name = "N", default_value_t = 0)]
    gid_index: u32,

    /// Tests to run
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_enum,
        default_values_t = [Test::WriteBw, Test::ReadBw, Test::SendBw, Test::AtomicBw, Test::WriteLat, Test::ReadLat, Test::SendLat, Test::AtomicLat])]
    tests: Vec<Test>,

    /// Message sizes in bytes [default: powers of two, 2 to 8388608]
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(2..))]
    sizes: Vec<u64>,

    /// Messages of each size
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(5..))]
    iterations: u32,

    /// Messages per completion in bandwidth tests
    #[arg(short = 'Q', long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    cq_mod: u32,

    /// Messages posted together in bandwidth tests, each in a run of its own
    #[arg(short = 'l', long, value_name = "LIST", value_delimiter = ',', default_values_t = [1], value_parser = clap::value_parser!(u32).range(1..))]
    post_lists: Vec<u32>,

    /// Send queue entries in bandwidth tests
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    tx_depth: u32,

    /// Library of both sides in place of libibverbs, such as target/release/libinstant.so, whose device empty_0 completes requests at once
    #[arg(long, value_name = "PATH")]
    preload: Option<PathBuf>,

    /// Sleep until an event on both sides of sends, for machines with one processor
    #[arg(short, long)]
    events: bool,

    /// Runs of each program
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Compare the best runs instead of the medians, on a machine with other work
    #[arg(long, conflicts_with = "control")]
    best: bool,

    /// Also run perftest a second time in each round, and compare its two runs: smaller differences are noise
    #[arg(long)]
    control: bool,

    /// Time limit of a run
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,

    /// stride-perf [default: next to this program]
    #[arg(long, value_name = "PATH")]
    stride: Option<PathBuf>,

    /// Program that starts the programs of perftest, such as target/preload/softrnic-run
    #[arg(long, value_name = "PATH")]
    perftest_by: Option<PathBuf>,
}

fn main() -> ExitCode {
    sideway_benches::ended(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let stride = match &arguments.stride {
        Some(path) => path.clone(),
        None => std::env::current_exe()
            .context("the path of this program is not available; give --stride")?
            .with_file_name("stride-perf"),
    };
    let preload = arguments.preload.as_deref().map(Preload::new).transpose()?;
    let mut settings = Settings {
        device: arguments.device.clone(),
        gid_index: arguments.gid_index,
        iterations: arguments.iterations,
        cq_mod: arguments.cq_mod,
        post_list: 1,
        tx_depth: arguments.tx_depth,
        preload: preload.as_ref().map(|preload| preload.paths()),
        events: arguments.events,
        timeout: Duration::from_secs(arguments.timeout),
    };
    let perftest = Pair::Perftest { by: arguments.perftest_by.clone() };
    let mut all = vec![(Which::Perftest, perftest.clone()), (Which::Stride, Pair::Stride { program: stride })];
    all.extend(arguments.control.then_some((Which::Control, perftest)));
    let mut out = io::stdout().lock();
    let control =
        if arguments.control { "; control: perftest's second run of a round relative to its first" } else { "" };
    writeln!(
        out,
        "{}, {} messages of each size, the {} of {} rounds; above 1 stride-perf is faster{control}",
        arguments.device,
        arguments.iterations,
        if arguments.best { "best" } else { "median" },
        arguments.rounds
    )?;
    let lists = arguments.tests.iter().flat_map(|&test| {
        let lists = if test.is_latency() { &[1] } else { arguments.post_lists.as_slice() };
        lists.iter().map(move |&list| (test, list))
    });
    for (test, list) in lists {
        settings.post_list = list;
        let mut report = Report::new(test, list, arguments.control, arguments.best);
        // `None` means all sizes in one run.
        let sizes: Vec<Option<u64>> = match test.has_one_size() || arguments.sizes.is_empty() {
            true => vec![None],
            false => arguments.sizes.iter().copied().map(Some).collect(),
        };
        for _ in 0..arguments.rounds {
            for &size in &sizes {
                for (which, pair) in &all {
                    report.add(*which, &pair.run(test, size, &settings)?);
                }
                report.end_turn();
            }
            all.rotate_left(1);
        }
        writeln!(out, "\n{report}")?;
        out.flush()?;
    }
    Ok(())
}
