//! Prints the transport that connections use on this machine, and the recommended changes: see [`trespass::doctor`].

use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "softrnic")]
    if let Err(error) = softrnic::register() {
        // If this fails, the report does not contain softrnic's devices.
        let _ = writeln!(io::stderr(), "warning: {error}");
    }
    let report = trespass::doctor();
    match write!(io::stdout(), "{report}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
