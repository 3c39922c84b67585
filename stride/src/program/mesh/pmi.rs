//! A client of PMI 1, the text protocol by which MPICH's launcher exchanges values between the ranks of a job.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Maximum length of a reply in bytes.
const LONGEST: usize = 4096;

/// The connection to the launcher.
pub(super) struct Pmi {
    stream: File,
    limit: Duration,
    /// The name of the job's set of values.
    space: String,
}

impl Pmi {
    /// Starts the exchange on a descriptor that the launcher has opened for this process.
    pub(super) fn open(descriptor: i32, limit: Duration) -> Result<Self> {
        let own = inherited(descriptor).with_context(|| format!("PMI_FD is {descriptor}"))?;
        let mut new = Self { stream: own.into(), limit, space: String::new() };
        new.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init")?;
        let reply = new.ask("cmd=get_my_kvsname", "my_kvsname")?;
        new.space = value(&reply, "kvsname").context("PMI has no name for the values of the job")?.to_owned();
        Ok(new)
    }

    /// Publishes a value, which contains no spaces.
    pub(super) fn put(&mut self, key: &str, value: &str) -> Result<()> {
        let text = format!("cmd=put kvsname={} key={key} value={value}", self.space);
        self.ask(&text, "put_result").map(drop)
    }

    /// Waits for all ranks, and returns a value that another rank has published before. Ends the exchange, so that the
    /// launcher does not expect more of this process.
    pub(super) fn barrier_and_end(mut self, key: Option<&str>) -> Result<Option<String>> {
        self.ask("cmd=barrier_in", "barrier_out").context("not all ranks have come")?;
        let mut found = None;
        if let Some(key) = key {
            let reply = self.ask(&format!("cmd=get kvsname={} key={key}", self.space), "get_result")?;
            found = value(&reply, "value").map(str::to_owned);
        }
        self.ask("cmd=finalize", "finalize_ack")?;
        Ok(found)
    }

    /// Sends a command, and returns the reply.
    fn ask(&mut self, command: &str, due: &str) -> Result<String> {
        writeln!(self.stream, "{command}").context("cannot write to the launcher by PMI")?;
        let reply = self.line().context("cannot read from the launcher by PMI")?;
        let is_good = value(&reply, "rc").is_none_or(|code| code == "0");
        if value(&reply, "cmd") != Some(due) || !is_good {
            bail!("the launcher replied {reply:?} to {command:?} by PMI");
        }
        Ok(reply)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        let limit = Timespec::try_from(self.limit).ok();
        while line.len() < LONGEST {
            if poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], limit.as_ref())? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let mut byte = [0];
            match self.stream.read(&mut byte)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ if byte == *b"\n" => return String::from_utf8(line).map_err(io::Error::other),
                _ => line.extend(byte),
            }
        }
        Err(io::Error::other("the line is too long"))
    }
}

/// Returns a copy of a descriptor that this process has inherited.
fn inherited(descriptor: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointer. It fails if the descriptor is not open.
    let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above has just created the descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Returns the value of a key in a line of `key=value` words.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_ascii_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}
