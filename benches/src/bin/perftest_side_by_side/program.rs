//! A program that runs, and its end.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// By when a server listens.
const START: Duration = Duration::from_secs(20);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);
/// How long a server may take to end, after its client.
const END: Duration = Duration::from_secs(10);

/// A program; it is killed when this goes.
pub(crate) struct Program {
    name: String,
    child: Child,
    /// What it prints, both kinds.
    printed: Option<[JoinHandle<String>; 2]>,
}

impl Program {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting {name}"))?;
        let printed = match (child.stdout.take(), child.stderr.take()) {
            (Some(out), Some(err)) => Some([drain(out), drain(err)]),
            _ => None,
        };
        Ok(Self { name, child, printed })
    }

    /// Waits until something on this machine listens on a port of TCP, or this has ended.
    pub(crate) fn await_listener(&mut self, port: u16) -> Result<()> {
        let deadline = Instant::now() + START;
        while !is_listening(port)? {
            if self.child.try_wait()?.is_some() {
                self.finish(Duration::ZERO)?;
                bail!("the server {} has ended before there was a client", self.name);
            }
            ensure!(Instant::now() < deadline, "the server {} does not listen on port {port}", self.name);
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Waits for its end; gives what it has printed, where it has ended well.
    pub(crate) fn finish(&mut self, within: Duration) -> Result<String> {
        let deadline = Instant::now() + within;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(Instant::now() < deadline, "{} has not ended within {} s", self.name, within.as_secs());
            thread::sleep(PAUSE);
        };
        let [out, err] = self.printed.take().context("it was waited for already")?.map(|text| text.join());
        let (out, err) = (out.unwrap_or_default(), err.unwrap_or_default());
        ensure!(status.success(), "{} has failed ({status}):\n{out}{err}", self.name);
        Ok(out)
    }

    /// The same, of a server whose client is done.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.finish(END).map(drop)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Either fails only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads all of it, beside what else is done.
fn drain(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What cannot be read is not there.
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Looks among the sockets of this machine: a connection would be the one client that a server waits for.
fn is_listening(port: u16) -> Result<bool> {
    /// `TCP_LISTEN`, as `/proc/net/tcp` has it.
    const LISTEN: &str = "0A";
    let is_listener = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().take(4).collect();
        let [_, local, _, state] = words[..] else { return false };
        let local = local.rsplit(':').next().and_then(|port| u16::from_str_radix(port, 16).ok());
        state == LISTEN && local == Some(port)
    };
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let [four, six] = tables.map(|table| table.map(|table| table.lines().any(is_listener)));
    // Where there is no IPv6 there is no such file.
    Ok(four.context("/proc/net/tcp")? || six.unwrap_or(false))
}
