//! See `rdrecv --help`.

use std::process::ExitCode;

use rdma_pipe::cli::{self, ReceiveCommand};
use rdma_pipe::error::Error;

fn main() -> ExitCode {
    cli::main("rdrecv", ReceiveCommand::verbosity, Error::stream_status, ReceiveCommand::run)
}
