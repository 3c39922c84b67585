//! `lens explain`.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use rdma_lens::{Trace, explain};

use crate::run::Refusal;

/// Find what went wrong first in traces, with the likely cause and the remedy
///
/// The traces are those of `lens run --json -o FILE`. With the traces of both peers, more causes are certain.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  lens run --json -o trace.json ./service\n  lens explain trace.json\n  lens explain client.json server.json"
)]
pub(crate) struct Explain {
    /// The traces
    #[arg(required = true, value_name = "FILE")]
    traces: Vec<PathBuf>,
}

/// Prints the report. The exit status is zero also if something went wrong in the program.
pub(crate) fn main(task: &Explain) -> Result<ExitCode, Refusal> {
    let read = |path: &PathBuf| {
        let cannot = |error: String| Refusal::new(format!("cannot read {}: {error}", path.display()));
        let file = File::open(path).map_err(|error| cannot(error.to_string()))?;
        let trace = Trace::read(BufReader::new(file)).map_err(|error| cannot(error.to_string()))?;
        if trace.records.is_empty() {
            return Err(Refusal::new(format!(
                "{} has no records: is it a trace of `lens run --json`?",
                path.display()
            )));
        }
        Ok(trace)
    };
    let traces = task.traces.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    match writeln!(io::stdout(), "{}", explain(&traces)) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Refusal::new(format!("cannot write to the standard output: {error}")))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
