//! What the program does, for each job of the command line.

mod console;
mod devices;
mod exit;
mod files;
mod interrupt;
mod log;
mod measure;
mod plot_cmd;
mod progress;
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

/// Does a job. Results go to standard output, everything else to standard error.
pub fn run(job: Job) -> ExitCode {
    log::print_warnings();
    let done = match job {
        Job::Measure(measurement) => measure::measure(*measurement, &Verbs),
        Job::Serve(service) => serve::serve(*service, &Verbs),
        Job::SelfTest(place) => self_test::self_test(&place, &Verbs),
        Job::Devices => print(devices::devices),
        Job::Plot { runs, output } => plot_cmd::paint(&runs, &output).map(|()| Exit::Done),
        Job::Completions(shell) => print(|out| Ok(cli::completions(shell, out)?)),
        Job::Man(command) => print(|out| Ok(cli::man(&command, out)?)),
    };
    match done {
        Ok(exit) => exit.code(),
        // Who reads the output has seen enough.
        Err(error) if is_broken_pipe(&error) => Exit::Done.code(),
        Err(error) => {
            let error = format!("{error:#}{}", more_files(&error));
            say(&format!("error: {error}"));
            Exit::Failed.code()
        }
    }
}

/// What to do where the process has as many files as it may have, and nothing has said so.
fn more_files(error: &anyhow::Error) -> &'static str {
    let is_full = error.downcast_ref::<io::Error>().is_some_and(|error| error.raw_os_error() == Some(libc::EMFILE));
    if is_full && !format!("{error:#}").contains("ulimit") { "; raise the limit (`ulimit -n`)" } else { "" }
}

/// Says what the command line comes to where it is no job: the help, the version, or what is wrong with it.
pub fn answer(answer: &clap::Error) -> ExitCode {
    let told = answer.print().and_then(|()| io::stdout().flush());
    match told {
        Err(error) if !answer.use_stderr() && error.kind() != io::ErrorKind::BrokenPipe => {
            say(&format!("error: standard output: {error}"));
            Exit::Failed.code()
        }
        // Of those that clap has, each fits into a byte.
        _ => u8::try_from(answer.exit_code()).map_or(Exit::Failed.code(), ExitCode::from),
    }
}

fn print(what: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<Exit> {
    let mut out = io::stdout().lock();
    what(&mut out).and_then(|()| Ok(out.flush()?)).context("standard output")?;
    Ok(Exit::Done)
}

/// A line for the user, beside the results.
fn say(text: &str) {
    // Where nobody can be told, nobody is.
    let _ = writeln!(io::stderr(), "{text}");
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
