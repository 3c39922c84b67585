//! `trespass-run COMMAND…`: runs a program, and all programs that it starts, with the library preloaded.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command for the terminal")]

use std::env;
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

fn main() -> ExitCode {
    let mut words = env::args_os().skip(1);
    let Some(program) = words.next() else {
        eprintln!("trespass-run: no command given; see `trespass-run --help`");
        return ExitCode::from(2);
    };
    if program == "-h" || program == "--help" {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    if let Err(error) = check_settings() {
        eprintln!("trespass-run: {error}");
        return ExitCode::from(2);
    }
    let own = env::current_exe().ok().and_then(|file| Some(file.parent()?.to_path_buf()));
    let own = own.unwrap_or_else(|| PathBuf::from("."));
    let installed = own.parent().map(|prefix| prefix.join(INSTALLED).join(LIBRARY));
    let mut library = own.join(LIBRARY);
    if !library.is_file() {
        library = installed.filter(|file| file.is_file()).unwrap_or(library);
    }
    if !library.is_file() {
        eprintln!("trespass-run: cannot load {}: no such file", library.display());
        return ExitCode::from(126);
    }
    if library.as_os_str().as_encoded_bytes().iter().any(|byte| b" :".contains(byte)) {
        eprintln!("trespass-run: cannot load {}: the loader splits paths at spaces and colons", library.display());
        return ExitCode::from(126);
    }
    if let Some(before) = env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        let path = library.as_mut_os_string();
        path.push(":");
        path.push(before);
    }
    let error = Command::new(&program).args(words).env("LD_PRELOAD", library).exec();
    eprintln!("trespass-run: cannot run {}: {error}", program.display());
    ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
}

/// Checks what the library would read, because it prints nothing unasked.
fn check_settings() -> Result<(), String> {
    let text = |name| env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    text(numbers::PORTS).map_or(Ok(()), |text| numbers::ports(&text).map(drop))?;
    text(numbers::SHIFT).map_or(Ok(()), |text| numbers::shift(&text).map(drop))
}
