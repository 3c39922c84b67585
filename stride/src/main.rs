//! `stride-perf`: see `stride-perf --help`.

use std::process::ExitCode;

use stride_perf::{cli, program};

fn main() -> ExitCode {
    match cli::parse(std::env::args_os()) {
        Ok(job) => program::run(job),
        Err(error) => program::print_parse_result(&error),
    }
}
