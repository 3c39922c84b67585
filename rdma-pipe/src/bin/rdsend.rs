//! See `rdsend --help`.

use std::process::ExitCode;

use rdma_pipe::cli::{self, SendCommand};
use rdma_pipe::error::Error;

fn main() -> ExitCode {
    cli::main("rdsend", SendCommand::verbosity, Error::stream_status, SendCommand::run)
}
