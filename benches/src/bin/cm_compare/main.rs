//! Runs rdma-core's cmtime and this project's in turn, on one machine, and prints how the times of their steps compare.
//!
//! The times of one run say little on a machine that does other things: the programs take turns, and the order changes from round
//! to round. What is printed is the median over all rounds and the best of them.

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

/// Compare the times of the connection manager's steps with those of rdma-core's cmtime
#[derive(Clone, Debug, Parser)]
#[command(name = "cm_compare", version, max_term_width = 110)]
struct Arguments {
    /// How often each pair of programs runs
    #[arg(short = 'n', long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Connections of each run
    #[arg(short, long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,

    /// The address of this machine's device
    #[arg(short, long, default_value = "10.71.0.1")]
    address: String,

    /// This project's cmtime [default: examples/cmtime beside this program]
    #[arg(long, value_name = "PATH")]
    ours: Option<PathBuf>,

    /// rdma-core's cmtime, of a version up to 51
    #[arg(long, value_name = "PATH", default_value = "cmtime")]
    theirs: PathBuf,

    /// Further options of our client, in one word
    #[arg(long, value_name = "OPTIONS", default_value = "", allow_hyphen_values = true)]
    options: String,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to do if even that fails.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let mut out = io::stdout().lock();
    let ours = match &arguments.ours {
        Some(path) => path.clone(),
        None => beside_this_program()?,
    };
    let options: Vec<String> = arguments.options.split_whitespace().map(str::to_owned).collect();
    // Each has its port, so that nothing of one run meets the next.
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

fn beside_this_program() -> Result<PathBuf> {
    let program = std::env::current_exe().context("where this program is")?;
    let folder = program.parent().context("this program is in no folder")?;
    Ok(folder.join("examples/cmtime"))
}
