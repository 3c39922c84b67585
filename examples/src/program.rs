//! The frame of every example: arguments in, text out, one sentence when it fails.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::Parser;

/// Parses the arguments, runs the program, and prints what went wrong as one sentence to standard error.
///
/// The exit status is 0, 1 when `run` fails, and 2 for arguments that make no sense. A reader that has had enough of the output
/// (`| head`) is no failure.
pub fn program<A: Parser>(run: impl FnOnce(A, &mut dyn Write) -> anyhow::Result<()>) -> ExitCode {
    let arguments = A::parse();
    let mut out = BufWriter::new(io::stdout().lock());
    // What was printed before a failure is printed in any case.
    let result = run(arguments, &mut out);
    let flushed = out.flush();
    match result.and(flushed.map_err(Into::into)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // The alternate form is the error and its causes, without a backtrace. Nothing is left to do if even that fails.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
