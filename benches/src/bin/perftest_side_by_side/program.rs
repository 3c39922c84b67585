//! A running program, and its end.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// The time limit of a server's start.
const START: Duration = Duration::from_secs(20);
/// The time between two checks.
const PAUSE: Duration = Duration::from_millis(5);
/// The time limit of a server's end, after its client's.
const END: Duration = Duration::from_secs(10);

/// A program; the drop kills it.
pub(crate) struct Program {
    name: String,
    child: Child,
    /// The program's standard output and standard error.
    printed: Option<[JoinHandle<String>; 2]>,
}

impl Program {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let printed = match (child.stdout.take(), child.stderr.take()) {
            (Some(out), Some(err)) => Some([drain(out), drain(err)]),
            _ => None,
        };
        Ok(Self { name, child, printed })
    }

    /// Waits until some process listens on a TCP port. Fails if this program ends first.
    pub(crate) fn await_listener(&mut self, port: u16) -> Result<()> {
        let deadline = Instant::now() + START;
        while !is_listening(port)? {
            if self.child.try_wait()?.is_some() {
                self.finish(Duration::ZERO)?;
                bail!("the server {} ended before its client started", self.name);
            }
            ensure!(Instant::now() < deadline, "the server {} does not listen on port {port}", self.name);
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Waits until the program exits; returns its output if it succeeded.
    pub(crate) fn finish(&mut self, within: Duration) -> Result<String> {
        let deadline = Instant::now() + within;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(
                Instant::now() < deadline,
                "{} did not end within {} s; raise --timeout",
                self.name,
                within.as_secs()
            );
            thread::sleep(PAUSE);
        };
        let [out, err] = self.printed.take().context("the program has already ended")?.map(|text| text.join());
        let (out, err) = (out.unwrap_or_default(), err.unwrap_or_default());
        ensure!(status.success(), "{} failed ({status}):\n{out}{err}", self.name);
        Ok(out)
    }

    /// Waits for the end of a server whose client has ended.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.finish(END).map(drop)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Each call fails only if the program has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads everything, in a thread.
fn drain(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // An unreadable part is left out.
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Checks the list of sockets, because the server would take a trial connection for its only client.
fn is_listening(port: u16) -> Result<bool> {
    /// `TCP_LISTEN` in `/proc/net/tcp`.
    const LISTEN: &str = "0A";
    let is_listener = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().take(4).collect();
        let [_, local, _, state] = words[..] else { return false };
        let local = local.rsplit(':').next().and_then(|port| u16::from_str_radix(port, 16).ok());
        state == LISTEN && local == Some(port)
    };
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let [four, six] = tables.map(|table| table.map(|table| table.lines().any(is_listener)));
    // The file is absent on a machine without IPv6.
    Ok(four.context("/proc/net/tcp")? || six.unwrap_or(false))
}
