//! `lens`: runs a program and shows, counts or fails its calls of RDMA devices.
//!
//! `run` sets the variables of [`rdma_lens::environment`], and executes `softrnic-run`, whose library contains the lens.

mod counts;
mod ctl;
mod explain;
mod run;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// See, count and fail the calls between an RDMA program and its devices
#[derive(Debug, Parser)]
#[command(name = "lens", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    Run(run::Run),
    Ctl(ctl::Ctl),
    Explain(explain::Explain),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Run(task) => run::main(task),
        Task::Ctl(task) => Err(ctl::main(task)),
        Task::Explain(task) => explain::main(&task),
    };
    result.unwrap_or_else(|refusal| {
        // If this cannot be printed, the status remains.
        let _ = writeln!(io::stderr(), "lens: {}", refusal.text);
        ExitCode::from(refusal.code)
    })
}
