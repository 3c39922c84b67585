//! Runs rdma-core's cmtime and this project's cmtime alternately on one machine, and compares the times of their steps.
//!
//! On a machine with other work, the times of one run vary. The programs therefore alternate, and their order changes
//! each round. The output is the median and the best of all rounds.
//!
//! Both clients have two threads. In rdma-core's, one thread makes the calls and one reads the events; in ours (`-n 2`),
//! each thread has half of the connections and its own event channel, because a call waits while an event is read.

mod pair;
mod report;
mod table;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use self::pair::Pair;
use self::report::Report;

/// Compare the times of connection steps with those of rdma-core's cmtime
#[derive(Clone, Debug, Parser)]
#[command(name = "cm_compare", version, max_term_width = 110)]
struct Arguments {
    /// Runs of each pair of programs
    #[arg(short = 'n', long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Connections of each run
    #[arg(short, long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,

    /// Address of a device of this machine
    #[arg(short, long, default_value = "10.71.0.1")]
    address: String,

    /// cmtime of this project [default: examples/cmtime next to this program]
    #[arg(long, value_name = "PATH")]
    ours: Option<PathBuf>,

    /// cmtime of rdma-core, version 51 or older
    #[arg(long, value_name = "PATH", default_value = "cmtime")]
    theirs: PathBuf,

    /// More options of our client, as one argument
    #[arg(long, value_name = "OPTIONS", default_value = "", allow_hyphen_values = true)]
    options: String,
}

fn main() -> ExitCode {
    sideway_benches::ended(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let mut out = io::stdout().lock();
    let ours = match &arguments.ours {
        Some(path) => path.clone(),
        None => next_to_this_program()?,
    };
    let options: Vec<String> = arguments.options.split_whitespace().map(str::to_owned).collect();
    // Each pair has its own port, so that no run affects the next.
    let pair = |name, program, port, options| Pair::new(name, program, &arguments.address, port, options);
    let theirs = pair("rdma-core", arguments.theirs.clone(), 7471, Vec::new());
    let ours = pair("sideway", ours, 7472, options);
    let mut report = Report::default();
    for round in 0..arguments.rounds {
        let order = if round % 2 == 0 { [&theirs, &ours] } else { [&ours, &theirs] };
        for pair in order {
            let table = pair.run(arguments.connections)?;
            let totals: Vec<String> =
                table.rows().iter().map(|row| format!("{} {:.0}", row.name, row.total_ms)).collect();
            writeln!(out, "round {} {}: {}", round + 1, pair.name(), totals.join(", "))?;
            out.flush()?;
            match std::ptr::eq(pair, &theirs) {
                true => report.theirs.push(table),
                false => report.ours.push(table),
            }
        }
    }
    writeln!(out, "\n{} connections, {} rounds\n\n{report}", arguments.connections, arguments.rounds)?;
    Ok(())
}

fn next_to_this_program() -> Result<PathBuf> {
    let program = std::env::current_exe().context("the path of this program is not available; give --ours")?;
    let folder = program.parent().context("the path of this program has no folder; give --ours")?;
    Ok(folder.join("examples/cmtime"))
}
