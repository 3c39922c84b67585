//! One run: boots the machine, sends the command, streams its output, waits for its exit status or the deadline.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::console;
use super::machine::{Machine, Ports, Running};

/// The destinations of the command's output.
pub(crate) struct Sinks {
    /// Receives the standard output.
    pub(crate) stdout: Box<dyn Write + Send>,
    /// Receives the standard error.
    pub(crate) stderr: Box<dyn Write + Send>,
}

impl Sinks {
    /// This program's own standard output and error.
    pub(crate) fn inherit() -> Self {
        Self { stdout: Box::new(std::io::stdout()), stderr: Box::new(std::io::stderr()) }
    }
}

/// The end of a run, unless the guest broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The command ended with this status; 128 + N when signal N killed it.
    Exited(u8),
    /// The deadline passed.
    TimedOut,
    /// The reader of the output has closed the stream.
    OutputClosed,
}

impl Outcome {
    /// The exit status of other programs for the same case: 124 of `timeout`, 128 + N of a shell for signal N
    /// (SIGPIPE).
    pub(crate) fn exit_status(self) -> u8 {
        match self {
            Self::Exited(status) => status,
            Self::TimedOut => 124,
            Self::OutputClosed => 128 + 13,
        }
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    /// The outcome.
    pub(crate) outcome: Outcome,
    /// Whether the guest was ready for the command.
    pub(crate) booted: bool,
}

#[derive(Debug)]
enum Event {
    Ready,
    Exited(u8),
    ControlClosed,
    OutputClosed,
}

/// A machine that boots, or runs its command. Its threads write the output to the sinks.
#[derive(Debug)]
pub(crate) struct Session {
    started: Instant,
    running: Running,
    relays: [JoinHandle<()>; 2],
    talk: JoinHandle<()>,
    events: Receiver<Event>,
}

impl Session {
    /// Starts the machine, which runs the shell script.
    pub(crate) fn start(machine: &Machine, script: Vec<u8>, sinks: Sinks) -> Result<Self> {
        let started = Instant::now();
        let (sender, events) = mpsc::channel();
        let (running, Ports { stdout, stderr, control }) = machine.start()?;
        let relays = [relay(stdout, sinks.stdout, sender.clone()), relay(stderr, sinks.stderr, sender.clone())];
        let talk = std::thread::spawn(move || talk(control, &script, &sender));
        Ok(Self { started, running, relays, talk, events })
    }

    /// Waits for the end. Since its start, the machine may take the time `boot` to boot and `timeout` to finish.
    ///
    /// # Errors
    ///
    /// QEMU or the guest died before the command ended: the message has the known cause and the last lines of the logs.
    pub(crate) fn finish(mut self, machine: &Machine, boot: Duration, timeout: Duration) -> Result<Report> {
        let mut booted = false;
        let outcome = loop {
            let left = if booted { timeout } else { boot }.saturating_sub(self.started.elapsed());
            match self.events.recv_timeout(left) {
                Ok(Event::Ready) => {
                    booted = true;
                }
                Ok(Event::Exited(status)) => break Some(Outcome::Exited(status)),
                Ok(Event::OutputClosed) => break Some(Outcome::OutputClosed),
                Ok(Event::ControlClosed) => break None,
                Err(RecvTimeoutError::Timeout) => break Some(Outcome::TimedOut),
                Err(RecvTimeoutError::Disconnected) => break None,
            }
        };

        if outcome.is_none() {
            // The ports close shortly before the process ends.
            let deadline = Instant::now() + Duration::from_secs(2);
            while self.running.ended()?.is_none() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        // The guest reports the exit status after its last byte of output has arrived here, so ending it loses nothing.
        drop(self.running);
        // After a time-out, do not wait for the relays: their reader may have stopped, and they end with this program.
        if !matches!(outcome, Some(Outcome::TimedOut | Outcome::OutputClosed)) {
            for thread in self.relays {
                join(thread)?;
            }
            join(self.talk)?;
        }
        match outcome {
            Some(outcome) => Ok(Report { outcome, booted }),
            None => bail!("{}", console::death(machine, booted)),
        }
    }
}

fn join(thread: JoinHandle<()>) -> Result<()> {
    thread.join().ok().context("a relay of the guest's output panicked")
}

/// Copies input to a sink until the port or the sink closes.
fn relay(mut port: UnixStream, mut sink: Box<dyn Write + Send>, events: Sender<Event>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = match port.read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            if sink.write_all(&buffer[..length]).and_then(|()| sink.flush()).is_err() {
                // The receiver is closed only if the run has ended for another reason.
                let _ = events.send(Event::OutputClosed);
                return;
            }
        }
    })
}

/// Communicates with guest.sh; the protocol is described at its top.
fn talk(control: UnixStream, script: &[u8], events: &Sender<Event>) {
    // A send fails only if the run has already ended for another reason.
    let send = |event| {
        let _ = events.send(event);
    };
    let mut lines = BufReader::new(&control).lines();
    while let Some(Ok(line)) = lines.next() {
        if line == "ready" {
            send(Event::Ready);
            let mut message = format!("{}\n", script.len()).into_bytes();
            message.extend_from_slice(script);
            if (&control).write_all(&message).is_err() {
                break;
            }
        } else if let Some(status) = line.strip_prefix("exit ").and_then(|status| status.parse().ok()) {
            send(Event::Exited(status));
            return;
        }
    }
    send(Event::ControlClosed);
}
