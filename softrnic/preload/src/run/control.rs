//! Sends a fault to the control socket of a process.

use std::io::{BufRead, BufReader, Error, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use std::{env, fs};

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
    let reply = ask(&path, command, TIMEOUT).map_err(|error| refusal(process, &path, &error))?;
    let reply = reply.trim_end();
    match reply.strip_prefix("ok") {
        Some(text) => {
            text.trim_start_matches(": ").split_whitespace().for_each(|counter| println!("{counter}"));
            Ok(())
        }
        None => Err(Refusal::new(FAILED, reply.trim_start_matches("error: "))),
    }
}

/// Why a process cannot be reached. A process that was killed leaves its socket, which is removed.
fn refusal(process: u32, path: &Path, error: &Error) -> Refusal {
    let has_ended = !Path::new("/proc").join(process.to_string()).exists();
    if has_ended && error.kind() == ErrorKind::ConnectionRefused && fs::remove_file(path).is_ok() {
        let text = format!("process {process} has ended; removed its control socket {}", path.display());
        return Refusal::new(FAILED, format!("{text}; give the number of a running process"));
    }
    let remedy = if has_ended {
        "no such process; give the number of a running process"
    } else {
        "start the process with SOFTRNIC_CONTROL, and let it open a device first"
    };
    Refusal::new(FAILED, format!("cannot reach process {process} at {}: {error}; {remedy}", path.display()))
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

    #[test]
    fn socket_of_an_ended_process_is_named_and_removed() {
        /// More than the largest number of a process.
        const ENDED: u32 = 1 << 30;
        let folder = Folder::new();
        let path = folder.join(ENDED.to_string());
        let asked = || refusal(ENDED, &path, &ask(&path, "port down", TIMEOUT).unwrap_err()).text;
        drop(UnixListener::bind(&path).unwrap());
        let text = asked();
        assert!(text.starts_with(&format!("process {ENDED} has ended; removed its control socket")), "{text}");
        assert!(!path.exists());
        assert!(asked().contains("no such process"), "{}", asked());
        // That of a running process stays.
        let own = folder.join(std::process::id().to_string());
        drop(UnixListener::bind(&own).unwrap());
        let error = ask(&own, "port down", TIMEOUT).unwrap_err();
        assert!(refusal(std::process::id(), &own, &error).text.contains("let it open a device first"));
        assert!(own.exists());
    }
}
