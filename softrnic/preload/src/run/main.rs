//! `softrnic-run COMMAND…`: runs a program with softrnic's devices.
//!
//! `arguments` reads the command line, `program` finds the program and says why it could not be helped, `library` finds the
//! library. What is left is to set one variable and become the program.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command for the terminal")]

mod arguments;
mod library;
mod program;

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use arguments::{Asked, HELP, Way};

/// What shells say when a command cannot be run.
const CANNOT_RUN: u8 = 126;
/// What shells say when there is no such command.
const NOT_FOUND: u8 = 127;
/// What shells say when they are used in the wrong way.
const MISUSED: u8 = 2;

/// Variables that programs need on soft devices, set unless the caller has set them.
///
/// UCX looks for the packet type of a datagram in the service level of its completion, where ConnectX has it, and drops datagrams over
/// IPv4 of every other device, the kernel's soft-RoCE included, unless it is told not to look.
const DEFAULTS: &[(&str, &str)] = &[("UCX_UD_ETH_DGID_CHECK", "n")];

/// Why the program was not run: what to say, and how to end.
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

/// Comes back only if the program is not run.
fn run(words: Vec<OsString>) -> Result<(), Refusal> {
    match arguments::parse(words)? {
        Asked::Help => print!("{HELP}"),
        Asked::Version => println!("softrnic-run {}", env!("CARGO_PKG_VERSION")),
        Asked::Run { way, program, arguments } => return Err(become_program(way, &program, &arguments)),
    }
    Ok(())
}

fn become_program(way: Way, name: &OsStr, arguments: &[OsString]) -> Refusal {
    let prepared = program::find(name).and_then(|file| {
        program::check(&file)?;
        library::variable(way)
    });
    let (variable, value) = match prepared {
        Ok(prepared) => prepared,
        Err(refusal) => return refusal,
    };
    let mut command = Command::new(name);
    command.args(arguments).env(variable, value);
    for (name, value) in DEFAULTS.iter().filter(|(name, _)| env::var_os(name).is_none()) {
        command.env(name, value);
    }
    let error = command.exec();
    Refusal::new(CANNOT_RUN, format!("cannot run {}: {error}", name.display()))
}
