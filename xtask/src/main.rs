//! The tasks of this repository: `cargo xtask --help`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a tool for the terminal; nothing else links it")]

mod bindings;
mod capi;
mod ci;
mod demo;
mod package;
mod packages;
mod plain;
mod preload;
mod progress;
mod repo;
mod softroce;
mod test;
mod toolchain;
mod trespass_capi;
mod weigh;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// The tasks of this repository
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    Demo(demo::Demo),
    Softroce(softroce::Softroce),
    Test(test::Test),
    Preload(preload::Preload),
    Capi(capi::Capi),
    TrespassCapi(trespass_capi::TrespassCapi),
    Package(package::Package),
    Bindings(bindings::Bindings),
    Weigh(weigh::Weigh),
    Ci(ci::Ci),
}

fn main() -> ExitCode {
    if weigh::is_wrapper() {
        return report(weigh::wrap());
    }
    report(match Arguments::parse().task {
        Task::Demo(task) => demo::main(&task),
        Task::Softroce(task) => Ok(softroce::main(task)),
        Task::Test(task) => test::main(&task),
        Task::Preload(task) => preload::main(&task),
        Task::Capi(task) => capi::main(&task),
        Task::TrespassCapi(task) => trespass_capi::main(&task),
        Task::Package(task) => package::main(&task),
        Task::Bindings(task) => bindings::main(&task).map(|()| ExitCode::SUCCESS),
        Task::Weigh(task) => weigh::main(&task),
        Task::Ci(task) => ci::main(&task),
    })
}

fn report(result: Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
