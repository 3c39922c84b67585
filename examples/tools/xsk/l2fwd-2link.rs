//! Forwards packets between two links without a copy.

mod support;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use self::support::{Counter, Link, Options, RIGHTS, Steering, forward, open_pair, run, work};

/// Forward packets, unchanged and without a copy, between two links in both directions
#[derive(Clone, Debug, Parser)]
#[command(name = "l2fwd-2link", after_help = RIGHTS, max_term_width = 110)]
struct Arguments {
    /// First network interface
    #[arg(long, value_name = "NAME")]
    link1_name: String,

    /// Queue of the first interface
    #[arg(long, value_name = "QUEUE", default_value_t = 0)]
    link1_channel: u32,

    /// Second network interface
    #[arg(long, value_name = "NAME")]
    link2_name: String,

    /// Queue of the second interface
    #[arg(long, value_name = "QUEUE", default_value_t = 0)]
    link2_channel: u32,

    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    run(|| carry_out(&arguments))
}

fn carry_out(arguments: &Arguments) -> Result<()> {
    let options = &arguments.options;
    let links = [
        Link { name: arguments.link1_name.clone(), channel: arguments.link1_channel },
        Link { name: arguments.link2_name.clone(), channel: arguments.link2_channel },
    ];
    let mut queues = open_pair(options, &links)?;
    let mut steering = Steering::default();
    for (link, queue) in links.iter().zip(&queues) {
        steering.add(options, link, queue.rx.socket())?;
    }
    let counters = [Counter::default(), Counter::default()];
    let worker = || forward(options, &mut queues, [&counters[0], &counters[1]]);
    let row = |from: usize, to: usize| (format!("{} to {}", links[from].name, links[to].name), &counters[from]);
    work(vec![worker], &[row(0, 1), row(1, 0)])?;
    steering.report_losses()
}
