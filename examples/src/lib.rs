//! Modules that the examples and the tools share. Each program is one file: `examples/` shows how to use sideway,
//! `tools/` has ports of rdma-core's programs.

pub mod connections;
pub mod exchange;
pub mod gid;
pub mod options;
pub mod payload;
pub mod pingpong;

mod devices;
mod local_port;
mod slots;
mod waiting;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::Parser;

pub use devices::{active_port, device_list, devices, no_device, no_device_with_connections, open_device};
pub use local_port::{LocalPort, check_datagram_size, check_message_size};
pub use options::{PortChoice, Timeout};
pub use slots::{Buffer, Slots};
pub use waiting::{Deadline, wait_for_one, wait_readable};

/// Parses the arguments, runs the program, and prints an error to standard error.
///
/// The exit status is 0 for success, 1 if `run` fails, and 2 for invalid arguments. A closed pipe (`| head`) is not a
/// failure.
pub fn program<A: Parser>(run: impl FnOnce(A, &mut dyn Write) -> anyhow::Result<()>) -> ExitCode {
    let arguments = A::parse();
    let mut out = BufWriter::new(io::stdout().lock());
    // The output is flushed even after a failure, so that earlier output is printed.
    let result = run(arguments, &mut out);
    let flushed = out.flush();
    match result.and(flushed.map_err(Into::into)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // The alternate form has the error and its causes, without a backtrace. If printing fails, there is no
            // remedy.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
