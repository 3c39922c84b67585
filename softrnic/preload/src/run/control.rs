//! Sends a fault to the control socket of a process.

use std::env;
use std::io::{BufRead, BufReader, Error, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::{MISUSED, Refusal};

/// The exit status if the process did not execute the command.
const FAILED: u8 = 1;

/// How long the process may take to answer; it may be stopped.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a command to a process.
pub(crate) fn send(process: u32, command: &str) -> Result<(), Refusal> {
    let Some(folder) = env::var_os(softrnic::control::CONTROL_VARIABLE) else {
        let text = "--control needs the folder of the control sockets; set SOFTRNIC_CONTROL as for the process";
        return Err(Refusal::new(MISUSED, text));
    };
    let path = Path::new(&folder).join(process.to_string());
    let reply = ask(&path, command, TIMEOUT).map_err(|error| {
        let remedy = "start the process with SOFTRNIC_CONTROL, and let it open a device first";
        Refusal::new(FAILED, format!("cannot reach process {process} at {}: {error}; {remedy}", path.display()))
    })?;
    match reply.trim_end() {
        "ok" => Ok(()),
        error => Err(Refusal::new(FAILED, error.trim_start_matches("error: "))),
    }
}

fn ask(path: &Path, command: &str, timeout: Duration) -> Result<String, Error> {
    let mut socket = UnixStream::connect(path)?;
    socket.set_read_timeout(Some(timeout))?;
    socket.set_write_timeout(Some(timeout))?;
    // The command is one line.
    writeln!(socket, "{}", command.replace('\n', " "))?;
    let mut reply = String::new();
    BufReader::new(socket).read_line(&mut reply).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => Error::new(ErrorKind::TimedOut, format!("no reply in {timeout:?}")),
        _ => error,
    })?;
    if reply.is_empty() {
        return Err(Error::new(ErrorKind::UnexpectedEof, "the process closed the connection without a reply"));
    }
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use sideway_test_names::Folder;

    use super::*;

    /// A process that is stopped does not answer, and one that ends closes the connection.
    #[test]
    fn a_missing_reply_is_an_error() {
        let folder = Folder::new();
        let path = folder.join("1");
        let listener = UnixListener::bind(&path).unwrap();
        let error = ask(&path, "port down", Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.to_string(), "no reply in 20ms");
        let ending = thread::spawn(move || {
            let (_silent, _) = listener.accept().unwrap();
            let (socket, _) = listener.accept().unwrap();
            BufReader::new(socket).read_line(&mut String::new()).unwrap();
        });
        let error = ask(&path, "port down", TIMEOUT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        ending.join().unwrap();
    }
}
