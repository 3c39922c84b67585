//! See `rdcp --help`.

use std::process::ExitCode;

use rdma_pipe::cli::{self, CopyCommand};
use rdma_pipe::error::Error;

fn main() -> ExitCode {
    cli::main("rdcp", CopyCommand::verbosity, Error::copy_status, CopyCommand::run)
}
