//! `softrnic-run COMMAND…`: runs a program with softrnic's devices. `softrnic-run --control PID FAULT…` sends a fault to
//! such a program.
//!
//! `arguments` parses the command line. `program` finds the program, and rejects programs into which the loader would
//! not preload softrnic. `library` finds the library. This process then sets the variable and executes the program.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command for the terminal")]

mod arguments;
mod control;
mod library;
mod program;

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use arguments::{HELP, Method, Request};

/// The exit status that shells use for a command that cannot be run.
const CANNOT_RUN: u8 = 126;
/// The exit status that shells use for a command that is not found.
const NOT_FOUND: u8 = 127;
/// The exit status that shells use for incorrect usage.
const MISUSED: u8 = 2;

/// The variables that programs need to use soft devices. Each is set if it is absent.
///
/// UCX expects that the service level in the completion of a datagram contains the packet type, as it does with
/// ConnectX. Unless this check is disabled, UCX drops the IPv4 datagrams of all other devices, including the soft-RoCE
/// device of the kernel.
const DEFAULTS: &[(&str, &str)] = &[("UCX_UD_ETH_DGID_CHECK", "n")];

/// Makes the library add softrnic's devices, also under a lens.
const DEVICES: &str = "SOFTRNIC_RUN";

/// The reason why the program cannot be run, and the exit status.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    text: String,
    code: u8,
}

impl Refusal {
    fn new(code: u8, text: impl Into<String>) -> Self {
        Self { text: text.into(), code }
    }
}

fn main() -> ExitCode {
    match run(env::args_os().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            eprintln!("softrnic-run: {}", refusal.text);
            ExitCode::from(refusal.code)
        }
    }
}

/// Handles the command line. Returns after `--help` and `--version`, or if the program cannot be executed.
fn run(words: Vec<OsString>) -> Result<(), Refusal> {
    match arguments::parse(words)? {
        Request::Help => print!("{HELP}"),
        Request::Version => println!("softrnic-run {}", env!("CARGO_PKG_VERSION")),
        Request::Control { process, command } => control::send(process, &command)?,
        Request::Run { method, devices, program, arguments } => {
            return Err(become_program(method, devices, &program, &arguments));
        }
    }
    Ok(())
}

fn become_program(method: Method, devices: bool, name: &OsStr, arguments: &[OsString]) -> Refusal {
    let prepared = program::find(name).and_then(|file| {
        program::check(&file)?;
        library::variables(method)
    });
    let variables = match prepared {
        Ok(prepared) => prepared,
        Err(refusal) => return refusal,
    };
    let mut command = Command::new(name);
    command.args(arguments).envs(variables);
    if devices {
        command.env(DEVICES, "1");
    }
    for (name, value) in DEFAULTS.iter().filter(|(name, _)| env::var_os(name).is_none()) {
        command.env(name, value);
    }
    let error = command.exec();
    Refusal::new(CANNOT_RUN, format!("cannot run {}: {error}", name.display()))
}
