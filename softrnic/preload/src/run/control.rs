//! Sends a fault to the control socket of a process.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::{MISUSED, Refusal};

/// The exit status if the process did not execute the command.
const FAILED: u8 = 1;

/// Sends a command to a process.
pub(crate) fn send(process: u32, command: &str) -> Result<(), Refusal> {
    let Some(folder) = env::var_os(softrnic::control::CONTROL_VARIABLE) else {
        let text = "--control needs the folder of the control sockets; set SOFTRNIC_CONTROL as for the process";
        return Err(Refusal::new(MISUSED, text));
    };
    let path = Path::new(&folder).join(process.to_string());
    let reply = ask(&path, command).map_err(|error| {
        let remedy = "start the process with SOFTRNIC_CONTROL, and let it open a device first";
        Refusal::new(FAILED, format!("cannot reach process {process} at {}: {error}; {remedy}", path.display()))
    })?;
    match reply.trim_end() {
        "ok" => Ok(()),
        error => Err(Refusal::new(FAILED, error.trim_start_matches("error: "))),
    }
}

fn ask(path: &Path, command: &str) -> std::io::Result<String> {
    let mut socket = UnixStream::connect(path)?;
    // The command is one line.
    writeln!(socket, "{}", command.replace('\n', " "))?;
    let mut reply = String::new();
    BufReader::new(socket).read_line(&mut reply)?;
    Ok(reply)
}
