//! See `rdpipe --help`.

use std::process::ExitCode;

use rdma_pipe::cli::{self, PipeCommand};
use rdma_pipe::error::Error;

fn main() -> ExitCode {
    cli::main("rdpipe", PipeCommand::verbosity, Error::copy_status, PipeCommand::run)
}
