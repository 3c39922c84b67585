//! Prints the transport that connections use on this machine, and the recommended changes: see [`trespass::doctor`].

use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "softrnic")]
    if let Err(error) = softrnic::register() {
        // On an error, the report shows the machine without softrnic.
        let _ = writeln!(io::stderr(), "warning: {error}");
    }
    let report = trespass::doctor();
    match write!(io::stdout(), "{report}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
