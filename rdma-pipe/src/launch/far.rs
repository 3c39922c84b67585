//! Starts the far side, and exchanges requests and replies with it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{Reply, Request};
use crate::error::{Error, Kind, Result, reason};
use crate::link::address;
use crate::proto::Peer;
use crate::tree::Ancestry;

/// Time limit for the far side to exit.
const END: Duration = Duration::from_secs(5);
/// Maximum length of a line that the far side sends.
const LINE: u64 = 16 << 20;

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
    /// The remote shell and the name of the far side's program, for messages.
    shell: String,
    program: &'static str,
    host: Option<String>,
    child: Child,
    input: Input,
    lines: BufReader<ChildStdout>,
    into: Option<Ancestry>,
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
    pub fn new(program: Option<&str>, (far, path): (&'static str, &str)) -> Result<Shell> {
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
    /// Starts the far side: on another host through the remote shell, or on this host directly.
    ///
    /// # Errors
    ///
    /// The host's name begins with `-`, which the remote shell would interpret as an option, or the remote shell cannot
    /// be run.
    pub fn start(shell: &Shell, host: Option<&str>, request: &Request) -> Result<Far> {
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
                command.arg("--server");
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
        let far = Far {
            name,
            shell: shell.program[0].clone(),
            program: shell.far,
            host: host.map(str::to_owned),
            child,
            input: Input(Arc::new(Mutex::new(Some(input)))),
            lines: BufReader::new(output),
            into: None,
        };
        far.write(request)?;
        Ok(far)
    }

    fn write(&self, request: &Request) -> Result<()> {
        let mut line = serde_json::to_vec(request).map_err(|error| Error::new(Kind::Usage, error.to_string()))?;
        line.push(b'\n');
        if let Some(input) = &mut *self.input.lock() {
            // If the far side has already exited, `reply` returns its reason.
            _ = input.write_all(&line).and_then(|()| input.flush());
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

    /// Returns the name of the far side's host.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the next reply.
    ///
    /// # Errors
    ///
    /// The far side has exited, or reported an error.
    pub fn reply(&mut self) -> Result<Reply> {
        loop {
            let mut line = Vec::new();
            let read = std::io::Read::take(&mut self.lines, LINE).read_until(b'\n', &mut line);
            match read {
                Ok(count) if count != 0 => {}
                _ => return Err(self.ended()),
            }
            match serde_json::from_slice(&line) {
                Ok(Reply::Failed(failure)) => return Err(Error::from(failure).on(&self.name)),
                Ok(reply) => return Ok(reply),
                // This line may be output of a login script on the other host.
                Err(_) => log::info!(
                    "{}: {}",
                    self.name,
                    crate::error::escape(String::from_utf8_lossy(&line).trim().as_ref())
                ),
            }
        }
    }

    /// Returns the addresses at which the far side listens.
    ///
    /// # Errors
    ///
    /// See [`Far::reply`].
    pub fn peer(&mut self, key: Vec<u8>) -> Result<Peer> {
        let Reply::Listening { port, addresses, into } = self.reply()? else {
            return Err(Error::protocol(format!("{}: the far side does not listen", self.name)));
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
        Ok(Peer { name: self.name.clone(), addresses: all, key })
    }

    fn ended(&mut self) -> Error {
        let status = self.child.wait().ok().and_then(|status| status.code());
        let text = match status {
            Some(127) => {
                let (name, program) = (&self.name, self.program);
                let remedy = format!("install rdma-pipe there, or pass its path with --{program}-path");
                format!("{name}: {program} is not installed; {remedy}")
            }
            Some(255) => format!(
                "{}: the remote shell failed; check that `{} {}` works without a password",
                self.name, self.shell, self.name
            ),
            Some(0) if self.input.lock().is_none() => {
                return Error::new(Kind::Broken, format!("{}: the far side was stopped", self.name));
            }
            Some(status) => format!("{}: the far side ended with status {status}", self.name),
            None => format!("{}: the far side was killed", self.name),
        };
        Error::protocol(text)
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.input.close();
        let until = Instant::now() + END;
        let mut pause = Duration::from_micros(50);
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() > until {
                // Ignores the error: the process may have exited in the meantime.
                _ = self.child.kill();
                _ = self.child.wait();
                return;
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(2));
        }
    }
}
