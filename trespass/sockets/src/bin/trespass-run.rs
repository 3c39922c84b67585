//! `trespass-run COMMAND…`: runs a program, and all programs that it starts, with the library preloaded.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command for the terminal")]

use std::env;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

#[path = "../numbers.rs"]
mod numbers;

const LIBRARY: &str = "libtrespass_sockets.so";
/// The folder of the library in an installation, beside that of this command.
const INSTALLED: &str = "libexec/trespass";

const HELP: &str = "\
Run a TCP program over RDMA, unmodified

Usage: trespass-run COMMAND [ARGUMENT]...

Its connections use RDMA if their peer also runs with trespass-run, and TCP
otherwise. The program must be linked with the C library dynamically.

Environment:
  TRESPASS_SOCKETS_LOG    1 prints a line for each connection
  TRESPASS_SOCKETS_PORTS  The TCP ports that use RDMA, such as 80,8000-8010
                          [default: all]
  TRESPASS_SOCKETS_SHIFT  What is added to a TCP port for the RDMA port; for
                          iWARP, which needs a port of its own [default: 0]
  SOFTRNIC_DEVICES        Devices in software [default: soft0,softiw0]

Examples:
  trespass-run iperf3 -s -1 &
  trespass-run iperf3 -c 127.0.0.1
";

/// Why the program was not run, and the exit status that shells use.
type Refusal = (u8, String);

fn main() -> ExitCode {
    let (code, text) = match run() {
        Ok(()) => return ExitCode::SUCCESS,
        Err(refusal) => refusal,
    };
    eprintln!("trespass-run: {text}");
    ExitCode::from(code)
}

/// Returns after `--help`, or if the program cannot be executed.
fn run() -> Result<(), Refusal> {
    let mut words = env::args_os().skip(1);
    let program = words.next().ok_or((2, "no command given; see `trespass-run --help`".to_owned()))?;
    if program == "-h" || program == "--help" {
        print!("{HELP}");
        return Ok(());
    }
    if program.as_encoded_bytes().starts_with(b"-") {
        return Err((2, format!("unknown option {}; see `trespass-run --help`", program.display())));
    }
    check_settings().map_err(|error| (2, error))?;
    let mut library = find_library()?;
    if let Some(before) = env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        let path = library.as_mut_os_string();
        path.push(":");
        path.push(before);
    }
    let error = Command::new(&program).args(words).env("LD_PRELOAD", library).exec();
    let remedy = match error.kind() {
        ErrorKind::NotFound => "install it, or give its path",
        ErrorKind::PermissionDenied => "give the path of an executable file",
        _ => "run it without trespass-run to see whether it starts",
    };
    let code = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
    Err((code, format!("cannot run {}: {error}; {remedy}", program.display())))
}

/// The library beside this command, or that of an installation.
fn find_library() -> Result<PathBuf, Refusal> {
    let own = env::current_exe().ok().and_then(|file| Some(file.parent()?.to_path_buf()));
    let own = own.unwrap_or_else(|| PathBuf::from("."));
    let installed = own.parent().map(|prefix| prefix.join(INSTALLED).join(LIBRARY));
    let beside = own.join(LIBRARY);
    let library = if beside.is_file() { beside } else { installed.filter(|file| file.is_file()).unwrap_or(beside) };
    let cannot = |why: &str| Err((126, format!("cannot load {}: {why}", library.display())));
    if !library.is_file() {
        return cannot("no such file; build it with `cargo build --profile for-c --package trespass-sockets`");
    }
    if library.as_os_str().as_encoded_bytes().iter().any(|byte| b" :".contains(byte)) {
        return cannot("the loader splits paths at spaces and colons; move both files to another folder");
    }
    Ok(library)
}

/// Checks what the library would read, because it prints nothing unasked.
fn check_settings() -> Result<(), String> {
    let text = |name| env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    text(numbers::PORTS).map_or(Ok(()), |text| numbers::ports(&text).map(drop))?;
    text(numbers::SHIFT).map_or(Ok(()), |text| numbers::shift(&text).map(drop))
}
