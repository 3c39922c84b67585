//! Forwards packets between pairs of queues, each pair on its own processor.

mod support;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use self::support::{Counter, Options, RIGHTS, Steering, entries, forward, open_pair, pin, run, work};

const ABOUT: &str = "\
Forwards packets, in both directions, between pairs of queues that a file lists. A thread pinned to the given core serves each pair:
  - core: 1
    link1_name: eth0
    link1_channel: 2
    link2_name: eth1
    link2_channel: 2";

/// Forward packets between two links on several processors
#[derive(Clone, Debug, Parser)]
#[command(name = "l2fwd-2link-multicore", long_about = ABOUT, after_help = RIGHTS, max_term_width = 110)]
struct Arguments {
    /// File that lists the pairs of queues
    #[arg(long, value_name = "FILE", default_value = "config.yaml")]
    config_file: PathBuf,

    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    run(|| carry_out(&arguments))
}

fn carry_out(arguments: &Arguments) -> Result<()> {
    let options = &arguments.options;
    let mut pairs = Vec::new();
    for entry in entries(&arguments.config_file)? {
        pairs.push((entry.number("core")?, [entry.link("link1")?, entry.link("link2")?]));
    }
    let counters: Vec<[Counter; 2]> = pairs.iter().map(|_| Default::default()).collect();
    let (mut steering, mut workers, mut rows) = (Steering::default(), Vec::new(), Vec::new());
    for ((core, links), counters) in pairs.iter().zip(&counters) {
        let mut queues = open_pair(options, links)?;
        for at in 0..2 {
            steering.add(options, &links[at], queues[at].rx.socket())?;
            let (from, to) = (&links[at], &links[1 - at]);
            rows.push((format!("core {core}: {} queue {} to {}", from.name, from.channel, to.name), &counters[at]));
        }
        workers.push(move || {
            pin(*core)?;
            forward(options, &mut queues, [&counters[0], &counters[1]])
        });
    }
    work(workers, &rows)?;
    steering.report_losses()
}
