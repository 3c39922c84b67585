//! Runs a segment of a pipeline: a command between two streams.
//!
//! Each segment receives a stream, from the starter or from the previous segment. A segment that does not use the
//! stream as its input discards the data, and waits until the stream ends.

mod parse;
mod segment;

pub use parse::{Operand, parse};
pub use segment::{Action, Next, Segment};

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid};

use crate::error::{Error, Kind, Result, reason};
use crate::link::{Link, Listener, Options, Patience, connect, reconnect};
use crate::proto::Purpose;
use crate::stream::{self, Output};
use crate::thread::start;

/// Time limit for the peers to connect.
const CONNECT: Duration = Duration::from_secs(60);
/// How long a command may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// Exit status of a process that received SIGPIPE: the reader closed the pipe, which is not a failure.
const PIPE: u8 = 13;

/// The name of the starter in the errors of a segment.
pub const STARTER: &str = "the starter";

/// Process groups of the running commands; `None` if no command may start any more.
static COMMANDS: Mutex<Option<Vec<Pid>>> = Mutex::new(Some(Vec::new()));

fn commands() -> MutexGuard<'static, Option<Vec<Pid>>> {
    COMMANDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends all commands of this process. Those that do not end themselves are killed.
pub fn kill_commands() {
    let mut running: Vec<Pid> = commands().take().unwrap_or_default();
    // Ignores errors: the processes may have ended already.
    running.iter().for_each(|pid| _ = kill_process_group(*pid, Signal::TERM));
    let until = Instant::now() + GRACE;
    loop {
        running.retain(|pid| test_kill_process_group(*pid).is_ok());
        if running.is_empty() || Instant::now() >= until {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    running.iter().for_each(|pid| _ = kill_process_group(*pid, Signal::KILL));
}

/// Runs a segment; returns its exit status. Calls `listening` with the port.
///
/// # Errors
///
/// A peer does not connect, a file cannot be opened, or a stream broke.
pub fn run_segment(
    segment: &Segment,
    key: &[u8],
    options: &Options,
    port: u16,
    listening: impl FnOnce(u16) -> bool,
) -> Result<u8> {
    let listener = Listener::bind(None, port, options)?;
    listening(listener.port());
    let mut output = match &segment.next {
        Next::Connect(peer) => {
            let patience = Patience::Listening(Duration::from_secs(10));
            Some(connect(peer, Purpose::Send, patience, options)?)
        }
        Next::Accept => None,
    };
    let named = |link: Link, purpose| {
        link.name_peer(if purpose == Purpose::Send { &segment.previous } else { STARTER });
        link
    };
    let mut input = None;
    let deadline = Some(Instant::now() + CONNECT);
    while input.is_none() || output.is_none() {
        match listener.accept(key, deadline)? {
            (link, purpose @ Purpose::Send) if input.is_none() => input = Some(named(link, purpose)),
            (link, purpose @ Purpose::Receive) if output.is_none() => output = Some(named(link, purpose)),
            _ => return Err(Error::protocol("a second sender or a second receiver connected")),
        }
    }
    let (Some(input), Some(output)) = (input, output) else { return Ok(1) };
    let accept = |purpose, until| listener.accept_for(key, purpose, until).map(|link| named(link, purpose));
    let input = End { link: input, again: Box::new(|until| accept(Purpose::Send, until)) };
    let again: Again<'_> = match &segment.next {
        Next::Connect(peer) => Box::new(|until| reconnect(peer, Purpose::Send, until, options)),
        Next::Accept => Box::new(|until| accept(Purpose::Receive, until)),
    };
    run(segment, input, End { link: output, again })
}

/// A function that waits for the next connection after a connection broke, until a deadline.
type Again<'e> = Box<dyn FnMut(Instant) -> Result<Link> + Send + 'e>;

/// One end of a segment: the connection, and the function that restores it.
struct End<'e> {
    link: Link,
    again: Again<'e>,
}

impl End<'_> {
    fn send(self, input: &OwnedFd, name: &str) -> Result<()> {
        stream::send(self.link, self.again, input, name).map(drop)
    }

    fn receive(self, output: Output) -> Result<()> {
        stream::receive(self.link, self.again, output).map(drop)
    }

    fn drain(self) -> Result<()> {
        self.receive(Output::create(Path::new("/dev/null"))?)
    }

    /// Reports a failure to the peer before the link is dropped.
    fn failed(&self, error: Error) -> Error {
        self.link.sender.abort(&error);
        self.link.sender.flush();
        error
    }
}

fn run(segment: &Segment, input: End<'_>, output: End<'_>) -> Result<u8> {
    match &segment.action {
        Action::Run(command) if segment.has_input => run_command(command, Some(input), output),
        Action::Run(command) => {
            input.drain()?;
            run_command(command, None, output)
        }
        Action::Read(path) => {
            input.drain()?;
            let file =
                std::fs::File::open(path).map_err(|error| output.failed(Error::file("read", path.as_ref(), &error)))?;
            lenient(output.send(&file.into(), path))
        }
        Action::Write(path) => {
            let to = Output::create(Path::new(path)).map_err(|error| input.failed(error))?;
            receive_or_drain(segment, input, to)?;
            send_nothing(output)
        }
        Action::Append(path) => {
            let file = OpenOptions::new().append(true).create(true).open(path);
            let file = file.map_err(|error| input.failed(Error::file("append to", path.as_ref(), &error)))?;
            receive_or_drain(segment, input, Output::Fd(file.into(), path.clone()))?;
            send_nothing(output)
        }
    }
}

/// Receives the input into `output`. If the segment has no input, the output file stays empty.
fn receive_or_drain(segment: &Segment, input: End<'_>, output: Output) -> Result<()> {
    if segment.has_input {
        return input.receive(output);
    }
    input.drain()?;
    output.keep()
}

fn send_nothing(output: End<'_>) -> Result<u8> {
    let empty =
        std::fs::File::open("/dev/null").map_err(|error| Error::file("open", Path::new("/dev/null"), &error))?;
    lenient(output.send(&empty.into(), "nothing"))
}

fn run_command(text: &str, input: Option<End<'_>>, output: End<'_>) -> Result<u8> {
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into());
    let mut command = Command::new(&shell);
    command.arg("-c").arg(text).process_group(0).stdout(Stdio::piped());
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    // If the command cannot be started, the peer that waits for its output is informed at once.
    let cannot = |error: std::io::Error| {
        let text = format!("cannot run {}: {}", shell.to_string_lossy(), reason(&error));
        output.failed(Error::new(Kind::Usage, text))
    };
    // Locked until the command is in the list, so that `kill_commands` finds every command that has started.
    let mut running = commands();
    let Some(list) = running.as_mut() else { return Err(cannot(std::io::ErrorKind::Interrupted.into())) };
    let mut child = command.spawn().map_err(cannot)?;
    let pid = Pid::from_child(&child);
    list.push(pid);
    drop(running);
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (received, sent, status) = thread::scope(|scope| {
        let receiving = input.zip(stdin).map(|(input, stdin)| {
            let output = Output::Fd(OwnedFd::from(stdin), "the command's input".to_owned());
            start(scope, move || input.receive(output))
        });
        let sending = stdout.map(|stdout| {
            let stdout = OwnedFd::from(stdout);
            start(scope, move || output.send(&stdout, "the command's output"))
        });
        let join = |thread: Option<Result<thread::ScopedJoinHandle<'_, Result<()>>>>| {
            let Some(thread) = thread.transpose()? else { return Ok(()) };
            thread.join().unwrap_or_else(|_| Err(Error::protocol("a thread panicked")))
        };
        let sent = join(sending);
        // The number of the process is not free before it was waited for, so nothing else is killed under it.
        let exited = || waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        while exited().is_err_and(|error| error == Errno::INTR) {}
        if let Some(running) = commands().as_mut() {
            running.clear();
        }
        let status = child.wait();
        (join(receiving), sent, status)
    });
    let status =
        status.map_err(|error| Error::new(Kind::Usage, format!("cannot wait for the command: {}", reason(&error))))?;
    match (exit_status(status), lenient(received)?, lenient(sent)?) {
        (0, ..) => Ok(0),
        (status, ..) => Ok(status),
    }
}

/// Converts a result to an exit status. It is not a failure if the reader has closed its end.
fn lenient(result: Result<()>) -> Result<u8> {
    match result {
        Err(error) if error.kind() == Kind::Signal(PIPE) => Ok(0),
        result => result.map(|()| 0),
    }
}

/// Converts the status of a process to an exit status as a shell would. A process that ended because its reader closed
/// the pipe counts as successful.
fn exit_status(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        // A shell returns 128 + N if signal N ended its command.
        (Some(code), _) if code == 128 + i32::from(PIPE) => 0,
        (Some(code), _) => code.clamp(0, 255) as u8,
        (None, Some(signal)) if signal == i32::from(PIPE) => 0,
        (None, Some(signal)) => 128_u8.saturating_add(signal as u8),
        (None, None) => 1,
    }
}
