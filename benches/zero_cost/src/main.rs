//! Counts the instructions of posting and polling with sideway and with C, on a device that does nothing.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use sideway_test_names::Folder;
use sideway_zero_cost::allocations::Counting;
use sideway_zero_cost::column::Column;
use sideway_zero_cost::work::{Interface, Task};
use sideway_zero_cost::{count, device, run, table};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Count the instructions of posting and polling with sideway and with C
///
/// Without a command, every loop runs under valgrind, and the table is printed. Fails if sideway exceeds a limit.
#[derive(Debug, Parser)]
#[command(name = "zero_cost", version, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run one loop in these variants, each with three numbers of rounds
    Run {
        /// Interface of C
        #[arg(value_enum)]
        interface: Interface,
        /// Task of the loop
        #[arg(value_enum)]
        task: Task,
        /// Folder of the compiled loops
        objects: PathBuf,
        /// Variants of the loop
        #[arg(value_enum, required = true)]
        columns: Vec<Column>,
    },
}

fn main() -> ExitCode {
    match carry_out(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            // If printing fails, no way to report remains.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(arguments: Arguments) -> Result<ExitCode> {
    let mut out = io::stdout();
    if let Some(Command::Run { interface, task, objects, columns }) = arguments.command {
        for column in columns {
            let sum = count::counted(|rounds| column.run(&objects, interface, task, rounds))?;
            writeln!(out, "{sum:016x} {:016x}", device::take_checksum())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let program = std::env::current_exe().context("the path of this program is not available")?;
    let rows = run::all(&program, Folder::new().path(), &[])?;
    writeln!(out, "{}", table::print(&rows))?;
    let faults = table::faults(&rows);
    write!(io::stderr(), "{faults}")?;
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
