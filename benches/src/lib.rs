//! The modules that the programs share.

use std::io::{self, Write};
use std::process::ExitCode;

pub mod measure;

/// Prints an error with its causes, and returns the exit status for this result.
#[must_use]
pub fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If printing fails, no way to report remains.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
