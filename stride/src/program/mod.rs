//! Runs the jobs of the command line.

mod console;
mod devices;
mod exit;
mod files;
mod header;
mod interrupt;
mod log;
mod measure;
mod mesh;
mod plot_cmd;
mod progress;
mod report_cmd;
mod self_test;
mod serve;
mod undelivered;
mod verdict;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};

use self::exit::Exit;
use crate::cli::{self, Job};
use crate::endpoint::Verbs;

/// Runs a job. Results go to standard output, and everything else to standard error.
pub fn run(job: Job) -> ExitCode {
    log::print_warnings();
    let done = match job {
        Job::Measure(measurement) => measure::measure(*measurement, &Verbs),
        Job::Mesh(job) => mesh::mesh(*job, &Verbs),
        Job::Serve(service) => serve::serve(*service, &Verbs),
        Job::SelfTest(config) => self_test::self_test(&config, &Verbs),
        Job::Devices => print(devices::devices),
        Job::Plot { runs, output } => plot_cmd::paint(&runs, &output).map(|()| Exit::Done),
        Job::Report { runs, output } => report_cmd::write(&runs, &output).map(|()| Exit::Done),
        Job::Completions(shell) => print(|out| Ok(cli::completions(shell, out)?)),
        Job::Man(command) => print(|out| Ok(cli::man(&command, out)?)),
    };
    match done {
        Ok(exit) => exit.code(),
        // The program that reads standard output has closed its end of the pipe, which is not an error.
        Err(error) if is_broken_pipe(&error) => Exit::Done.code(),
        Err(error) => {
            let error = format!("{error:#}{}", more_files(&error));
            print_line(&format!("error: {error}"));
            Exit::Failed.code()
        }
    }
}

/// Returns a remedy if the error is a lack of file descriptors and does not contain a remedy itself.
fn more_files(error: &anyhow::Error) -> &'static str {
    let is_full = error.downcast_ref::<io::Error>().is_some_and(|error| error.raw_os_error() == Some(libc::EMFILE));
    if is_full && !format!("{error:#}").contains("ulimit") { "; raise the limit (`ulimit -n`)" } else { "" }
}

/// Prints what the parser returned instead of a job: the help, the version or an error.
pub fn print_parse_result(error: &clap::Error) -> ExitCode {
    let printed = error.print().and_then(|()| io::stdout().flush());
    match printed {
        Err(cause) if !error.use_stderr() && cause.kind() != io::ErrorKind::BrokenPipe => {
            print_line(&format!("error: standard output: {cause}"));
            Exit::Failed.code()
        }
        // The conversion is lossless, because clap's exit statuses fit into a byte.
        _ => u8::try_from(error.exit_code()).map_or(Exit::Failed.code(), ExitCode::from),
    }
}

fn print(what: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<Exit> {
    let mut text = Vec::new();
    what(&mut text)?;
    let mut out = io::stdout().lock();
    out.write_all(&text).and_then(|()| out.flush()).context("standard output")?;
    Ok(Exit::Done)
}

/// Prints a line to standard error.
fn print_line(text: &str) {
    // Ignores the error, because there is nowhere to report it.
    let _ = writeln!(io::stderr(), "{text}");
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
