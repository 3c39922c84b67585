//! Starts the far side, and exchanges requests and replies with it.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{Reply, Request};
use crate::error::{Error, Kind, Result, reason};
use crate::link::address;
use crate::proto::Peer;
use crate::silence::Silence;
use crate::tree::Ancestry;

/// Time limit for the far side to exit.
const END: Duration = Duration::from_secs(5);
/// Minimum time limit for the remote shell to connect and the far side to start.
const START: Duration = Duration::from_secs(10);
/// Maximum length of a reply.
const LINE: usize = 16 << 20;
/// Maximum length of the other output before a reply.
const OTHERS: usize = 1 << 20;
/// Maximum length of the part of such output that an error quotes.
const QUOTED: usize = 60;

/// The remote shell that starts programs on other hosts.
#[derive(Clone, Debug)]
pub struct Shell {
    /// The remote shell, with its options.
    pub program: Vec<String>,
    /// The name of the far side's program.
    pub far: &'static str,
    /// Its path on the other host.
    pub far_path: String,
}

/// A running far side.
#[derive(Debug)]
pub struct Far {
    name: String,
    /// The name of the far side in errors.
    label: String,
    /// The remote shell, and the name and the path of the far side's program, for messages.
    shell: String,
    program: &'static str,
    path: String,
    host: Option<String>,
    child: Child,
    input: Input,
    output: ChildStdout,
    /// The part of the output that was read and not parsed yet.
    unparsed: Vec<u8>,
    into: Option<Ancestry>,
    /// Whether it has replied.
    has_replied: bool,
    /// The time after which a silent far side has failed.
    timeout: Duration,
}

/// The standard input of a far side. Without it, the far side ends.
#[derive(Clone, Debug)]
pub struct Input(Arc<Mutex<Option<ChildStdin>>>);

impl Input {
    /// Closes the input, also for the other owners.
    pub fn close(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<ChildStdin>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shell {
    /// Selects the remote shell: `program`, which the option `-e` names by the rules of a shell, or ssh. `far` is the
    /// program of the far side, and its path on the other host.
    ///
    /// # Errors
    ///
    /// `-e` is empty, or a quotation in it has no end.
    pub fn new(program: Option<&str>, far: &'static str, path: &str) -> Result<Shell> {
        let program: Vec<String> = match program {
            Some(text) => shlex::split(text)
                .ok_or_else(|| Error::new(Kind::Usage, format!("-e {text}: a quotation or an escape has no end")))?,
            None => ["ssh", "-T", "-oBatchMode=yes", "-oConnectTimeout=10", "-oServerAliveInterval=15"]
                .map(str::to_owned)
                .to_vec(),
        };
        if program.is_empty() {
            return Err(Error::new(Kind::Usage, "-e names no program"));
        }
        Ok(Shell { program, far, far_path: path.to_owned() })
    }
}

impl Far {
    /// Starts the far side: on another host through the remote shell, or on this host directly. Errors name it by
    /// `label`, or by its host.
    ///
    /// # Errors
    ///
    /// The host's name begins with `-`, which the remote shell would interpret as an option, the remote shell cannot be
    /// run, or it does not read the request.
    pub fn start(shell: &Shell, host: Option<&str>, label: Option<String>, request: &Request) -> Result<Far> {
        let mut command = match host {
            Some(host) => {
                if host.starts_with('-') || host.is_empty() {
                    return Err(Error::new(Kind::Usage, format!("{host:?} is not a valid host name")));
                }
                let mut command = Command::new(&shell.program[0]);
                command.args(&shell.program[1..]).arg(host).arg(format!("{} --server", shell.far_path));
                command
            }
            None => {
                let this = std::env::current_exe()
                    .map_err(|error| Error::new(Kind::Usage, format!("cannot find this program: {error}")))?;
                let mut command = Command::new(this);
                // Ctrl-C of the terminal would end it before it has ended its commands, as it does when its input ends.
                command.arg("--server").process_group(0);
                command
            }
        };
        let name = host.unwrap_or("this host").to_owned();
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|error| {
            let program = command.get_program().to_string_lossy();
            Error::new(Kind::Usage, format!("cannot run {program}: {}; name another with -e", reason(&error)))
        })?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::new(Kind::Protocol, "the far side has no standard streams"));
        };
        let mut far = Far {
            label: label.unwrap_or_else(|| name.clone()),
            name,
            shell: shell.program[0].clone(),
            program: shell.far,
            path: shell.far_path.clone(),
            host: host.map(str::to_owned),
            child,
            input: Input(Arc::new(Mutex::new(Some(input)))),
            output,
            unparsed: Vec::new(),
            into: None,
            has_replied: false,
            timeout: Duration::from_secs(request.link.timeout),
        };
        far.write(request)?;
        Ok(far)
    }

    /// Writes the request. If the far side has already exited, `reply` returns its reason.
    fn write(&mut self, request: &Request) -> Result<()> {
        let mut line = serde_json::to_vec(request).map_err(|error| Error::new(Kind::Usage, error.to_string()))?;
        line.push(b'\n');
        let input = self.input();
        let mut input = input.lock();
        let Some(input) = &mut *input else { return Ok(()) };
        if let Err(error) = rustix::io::ioctl_fionbio(&*input, true) {
            return Err(Error::protocol(format!("cannot write to the remote shell: {error}")));
        }
        let mut silence = Silence::new(self.timeout.max(START));
        let mut rest = &line[..];
        while !rest.is_empty() {
            match input.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !is_ready(input.as_fd(), PollFlags::OUT, &mut silence) {
                        return Err(self.silent());
                    }
                }
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// The far side's standard input.
    pub fn input(&self) -> Input {
        self.input.clone()
    }

    /// The destination to which the far side writes, if it has sent it.
    pub fn destination(&self) -> Option<&Ancestry> {
        self.into.as_ref()
    }

    /// Returns the name of the far side in errors.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the name of the far side's host.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the next reply.
    ///
    /// # Errors
    ///
    /// The far side has exited, was silent for longer than the time-out, or reported an error.
    pub fn reply(&mut self) -> Result<Reply> {
        self.reply_within(self.timeout)
    }

    fn reply_within(&mut self, limit: Duration) -> Result<Reply> {
        let (mut silence, mut others) = (Silence::new(limit), Vec::new());
        loop {
            let Some(line) = self.line(&mut silence, &others)? else { return Err(self.ended()) };
            match serde_json::from_slice(&line) {
                Ok(Reply::Failed(failure)) => return Err(self.of_link(failure.into()).on(&self.label)),
                Ok(reply) => {
                    self.has_replied = true;
                    return Ok(reply);
                }
                Err(_) if line.trim_ascii().is_empty() => {}
                // This line may be output of a login script on the other host.
                Err(_) => {
                    log::info!("{}: {}", self.name, quoted(&line));
                    others.extend(line);
                    others.push(b'\n');
                }
            }
        }
    }

    /// Reads a line, without its end; `None` at the end of the output. `others` is the output since the last reply.
    fn line(&mut self, silence: &mut Silence, others: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut searched = 0;
        loop {
            if searched > LINE || others.len() > OTHERS {
                let text = quoted(if others.is_empty() { &self.unparsed } else { others });
                let remedy = "check that the login script there prints nothing";
                let text = format!("the remote shell printed {text} and more instead of a reply; {remedy}");
                return Err(Error::protocol(text).on(&self.label));
            }
            if let Some(at) = self.unparsed[searched..].iter().position(|&byte| byte == b'\n') {
                let rest = self.unparsed.split_off(searched + at + 1);
                let mut line = std::mem::replace(&mut self.unparsed, rest);
                line.truncate(searched + at);
                return Ok(Some(line));
            }
            searched = self.unparsed.len();
            if !is_ready(self.output.as_fd(), PollFlags::IN, silence) {
                return Err(self.silent());
            }
            let mut bytes = [0; 16 << 10];
            match self.output.read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(count) => self.unparsed.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Ok(None),
            }
        }
    }

    /// Names both hosts of a connection that has failed, because the one that reports it may be the one that is
    /// disconnected.
    fn of_link(&self, error: Error) -> Error {
        match error.parts() {
            // The latter reports that this far side has failed.
            (peer, _) if peer.is_empty() || peer == self.label => error,
            (peer, text) if matches!(error.kind(), Kind::Broken | Kind::TimedOut) => {
                Error::new(error.kind(), text).on(&format!("{} to {peer}", self.label))
            }
            _ => error,
        }
    }

    /// Ends the remote shell, because nothing else would.
    fn silent(&mut self) -> Error {
        // Ignores the error: the process may have exited in the meantime.
        _ = self.child.kill();
        let seconds = self.timeout.as_secs();
        let text = format!("the far side was silent for {seconds} s; check that it is not stopped, or raise --timeout");
        Error::new(Kind::TimedOut, text).on(&self.label)
    }

    /// Returns the addresses at which the far side listens.
    ///
    /// # Errors
    ///
    /// See [`Far::reply`].
    pub fn peer(&mut self, key: Vec<u8>) -> Result<Peer> {
        let (port, addresses, into) = loop {
            match self.reply_within(self.timeout.max(START))? {
                Reply::Listening { port, addresses, into } => break (port, addresses, into),
                Reply::Progress(..) => {}
                _ => return Err(Error::protocol("the far side does not listen").on(&self.label)),
            }
        };
        self.into = into;
        let host = self.host.as_deref().map(|host| host.rsplit_once('@').map_or(host, |(_, host)| host));
        let names = addresses.iter().map(String::as_str).chain([host.unwrap_or("127.0.0.1")]);
        let mut all = Vec::new();
        for name in names {
            let address = address(name, port);
            if !all.contains(&address) {
                all.push(address);
            }
        }
        Ok(Peer { name: self.label.clone(), addresses: all, key })
    }

    fn ended(&mut self) -> Error {
        let text = match self.wait().map(|status| status.code()) {
            Some(Some(127)) => {
                let program = self.program;
                format!("{program} is not installed; install rdma-pipe there, or pass its path with --{program}-path")
            }
            Some(Some(255)) => {
                format!("the remote shell failed; check that `{} {}` works without a password", self.shell, self.name)
            }
            Some(Some(0)) if self.input.lock().is_none() => {
                return Error::new(Kind::Broken, "the far side was stopped").on(&self.label);
            }
            Some(Some(status)) if self.has_replied || self.host.is_none() => {
                format!("the far side ended with status {status}")
            }
            Some(Some(status)) => format!(
                "the far side ended with status {status} and without a reply; check that `{} {} {} --version` prints \
                 the version",
                self.shell, self.name, self.path
            ),
            Some(None) => "the far side was killed".to_owned(),
            None => "the far side has closed its output and does not end".to_owned(),
        };
        Error::protocol(text).on(&self.label)
    }

    /// Waits until the remote shell exits; kills it after the time limit, and then returns `None`.
    fn wait(&mut self) -> Option<ExitStatus> {
        let until = Instant::now() + END;
        let mut pause = Duration::from_micros(50);
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() <= until => {}
                _ => {
                    // Ignores the error: the process may have exited in the meantime.
                    _ = self.child.kill();
                    _ = self.child.wait();
                    return None;
                }
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(2));
        }
    }
}

/// Waits until the descriptor is ready, or no time is left.
fn is_ready(fd: BorrowedFd<'_>, flags: PollFlags, silence: &mut Silence) -> bool {
    let wait = |until: Instant| {
        let left = until.saturating_duration_since(Instant::now());
        let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        poll(&mut [PollFd::from_borrowed_fd(fd, flags)], Some(&limit))
    };
    // The next call on the descriptor returns the error.
    while let Some(ready) = silence.step(wait) {
        if !matches!(ready, Ok(0) | Err(Errno::INTR)) {
            return true;
        }
    }
    false
}

/// Quotes the beginning of an output that is no reply.
fn quoted(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(QUOTED)]).into_owned();
    format!("\"{}\"", crate::error::escape(text.trim().as_ref()))
}

impl Drop for Far {
    fn drop(&mut self) {
        self.input.close();
        self.wait();
    }
}
