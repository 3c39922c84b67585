//! The modules that the programs share.

use std::io::{self, Write};
use std::process::ExitCode;

pub mod measure;

/// The exit status of a program with this result; prints the error with its causes.
#[must_use]
pub fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A failure to print it has no remedy.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
