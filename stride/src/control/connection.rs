//! The control connection to the peer, which sends and receives whole messages.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::failure::{Cause, Failure, name};
use super::frame::{Frame, PROTOCOL, Unframed, speaker};
use super::message::{Hello, Message, Reason, Unread};
use super::wire::{Deadline, Wire, read_some};
use crate::endpoint::Role;
use crate::plan::time;

/// How long to wait for the last messages of the peer when the connection ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum length of a text from the peer, in characters.
const MAX_TEXT: usize = 4096;

/// Maximum number of notes from the peer that are kept until they are read.
const MAX_NOTES: usize = 256;

/// The control connection to the peer.
pub struct Connection {
    wire: Box<dyn Wire>,
    role: Role,
    timeout: Duration,
    last_received: Instant,
    notes: Vec<String>,
    /// Version of the peer's program, once it has been received.
    version: Option<String>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("role", &self.role).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Connection {
    /// Exchanges the first messages of both sides.
    ///
    /// # Errors
    ///
    /// `Incompatible` if the peer is another program or version, `Busy` if the server serves another client, `Broken`
    /// if the peer is silent, `Unreachable` if the peer closes the connection. In the last case, one server process may
    /// have exited, and the next one may be about to start.
    pub fn handshake(wire: impl Wire + 'static, role: Role, timeout: Duration) -> Result<(Self, Hello), Failure> {
        Self::new(wire, role, timeout).greet(|new| Frame::read(&mut *new.wire, Deadline::after(timeout)))
    }

    /// Performs the handshake of a server with a client whose first frame was read before.
    ///
    /// # Errors
    ///
    /// The same errors as [`handshake`](Self::handshake).
    pub(super) fn accept(
        wire: impl Wire + 'static,
        first: Result<Frame, Unframed>,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        Self::new(wire, Role::Server, timeout).greet(|_| first).map(|(new, _)| new)
    }

    fn new(wire: impl Wire + 'static, role: Role, timeout: Duration) -> Self {
        Self { wire: Box::new(wire), role, timeout, last_received: Instant::now(), notes: Vec::new(), version: None }
    }

    /// Sends the hello of this side, and receives that of the peer.
    fn greet(self, first: impl FnOnce(&mut Self) -> Result<Frame, Unframed>) -> Result<(Self, Hello), Failure> {
        let mut new = self;
        let hello = Hello { version: env!("CARGO_PKG_VERSION").to_owned(), busy: None };
        // An incompatible peer may have closed the connection already. The data that the peer sent before explains more
        // than the error of this write.
        let sent = new.write(&Message::Hello(hello));
        let first = first(&mut new);
        let theirs = new.hello(first)?;
        sent.map_err(|error| new.lost(&error))?;
        new.version = Some(short(theirs.version.clone()));
        match theirs.busy {
            Some(why) => Err(Failure::Busy(why)),
            None => Ok((new, theirs)),
        }
    }

    /// Returns the role of this side.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns how long the peer may be silent.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Changes how long the peer may be silent.
    #[cfg(test)]
    pub(super) fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sends a message.
    pub(super) fn send(&mut self, message: &Message) -> Result<(), Failure> {
        self.write(message).map_err(|error| {
            // If the peer has closed the connection, it may have sent the cause before.
            match self.read(Deadline::after(CLOSE_TIMEOUT.min(self.timeout))) {
                Err(failure @ Failure::Theirs(..)) => failure,
                _ => self.lost(&error),
            }
        })
    }

    /// Receives the next message, and fails if none arrives before the time-out.
    pub(super) fn receive(&mut self) -> Result<Message, Failure> {
        self.read(Deadline::after(self.timeout))
    }

    /// Converts an error of this side in an operation that both sides carry out together. If a failure report of the
    /// peer arrives within a second, it is added to the error, because both failures may have the same cause.
    pub(super) fn failed(&mut self, error: anyhow::Error) -> Failure {
        match self.read(Deadline::after(CLOSE_TIMEOUT.min(self.timeout))) {
            Err(theirs @ Failure::Theirs(..)) => Failure::rdma(error.context(theirs.to_string())),
            _ => Failure::rdma(error),
        }
    }

    /// Returns a message if one has already arrived, without waiting for one.
    pub(super) fn arrived(&mut self) -> Result<Option<Message>, Failure> {
        let has_input = self.wire.has_input().map_err(|error| self.lost(&error))?;
        if has_input { self.receive().map(Some) } else { Ok(None) }
    }

    /// Returns a descriptor that becomes readable when data may have arrived, if the connection has one.
    pub(super) fn readable_fd(&mut self) -> Option<OwnedFd> {
        self.wire.readable_fd()
    }

    /// Returns a failure if the peer has sent nothing for longer than the time-out while a step runs.
    pub(super) fn silence(&self) -> Option<Failure> {
        let text =
            || format!("was silent for {} during the measurement; it may be hung or stopped", time::show(self.timeout));
        (self.last_received.elapsed() > self.timeout).then(|| self.broken::<()>(text()).err()).flatten()
    }

    /// Returns the remarks for the user that the peer has sent since the last call.
    pub(super) fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Returns the failure for a message that the peer should not have sent at this point.
    pub(super) fn unexpected<T>(&self, found: &Message, due: &str) -> Result<T, Failure> {
        self.broken(format!("sent `{}`, expected `{due}`", found.name()))
    }

    /// Returns the failure for a violation of the protocol by the peer.
    pub(super) fn broken<T>(&self, what: impl AsRef<str>) -> Result<T, Failure> {
        Err(Failure::Broken(format!("the {} {}", self.other(), what.as_ref())))
    }

    /// Sends the cause of a failure to the peer, unless the peer itself reported the failure.
    pub(super) fn part(&mut self, failure: &Failure) {
        let text = match failure {
            Failure::Ours(error) | Failure::Rdma(error) => format!("{error:#}"),
            Failure::Broken(text) => text.clone(),
            Failure::Theirs(..) | Failure::Unreachable(_) | Failure::Busy(_) | Failure::Incompatible(_) => return,
        };
        // Ignores the error, because the peer may have disconnected.
        let reason = Reason { text, is_rdma: failure.cause() == Cause::Rdma };
        let _ = self.write(&Message::Error(reason));
        // Does not wait for the peer to close the connection if the peer is silent.
        if self.last_received.elapsed() <= self.timeout {
            self.linger();
        }
    }

    /// Waits for up to a second until the peer closes the connection. If this side closed the connection first, the
    /// last message could be lost.
    pub(super) fn linger(&mut self) {
        linger(&mut *self.wire, CLOSE_TIMEOUT);
    }

    fn other(&self) -> &'static str {
        match self.role {
            Role::Client => name(Role::Server),
            Role::Server => name(Role::Client),
        }
    }

    fn write(&mut self, message: &Message) -> io::Result<()> {
        write(&mut *self.wire, message, self.timeout)
    }

    /// Reads the next message. Stores notes, and returns an error message of the peer as a failure.
    fn read(&mut self, deadline: Deadline) -> Result<Message, Failure> {
        loop {
            let frame = Frame::read(&mut *self.wire, deadline).or_else(|unframed| self.unframed(unframed))?;
            self.last_received = Instant::now();
            match Message::unpack(frame.kind, &frame.body) {
                Ok(Message::Error(Reason { text, is_rdma })) => {
                    let other = if self.role == Role::Client { Role::Server } else { Role::Client };
                    return Err(Failure::Theirs(other, Reason { text: short(text), is_rdma }));
                }
                Ok(Message::Note(text)) if self.notes.len() < MAX_NOTES => self.notes.push(short(text)),
                Ok(Message::Note(_)) => {}
                Ok(message) => return Ok(message),
                Err(Unread::Kind(kind)) => {
                    return self.broken(format!("sent a message of unknown kind {kind}"));
                }
                Err(Unread::Newer(member)) => {
                    let (ours, theirs) = (env!("CARGO_PKG_VERSION"), self.version.as_deref().unwrap_or("another"));
                    return self.broken(format!(
                        "requests `{member}`, which stride-perf {ours} on this side does not support (the peer is \
                         version {theirs}); use the same version on both sides"
                    ));
                }
                Err(Unread::Body(kind, error)) => {
                    return self.broken(format!("sent a malformed `{kind}`: {error}"));
                }
            }
        }
    }

    fn unframed<T>(&self, unframed: Unframed) -> Result<T, Failure> {
        match unframed {
            Unframed::End(0) => self.broken("disconnected: it ended or was stopped"),
            Unframed::End(_) => self.broken("disconnected in the middle of a message"),
            Unframed::Foreign(bytes) => self.broken(format!("sent malformed data: \"{}\"", bytes.escape_ascii())),
            Unframed::Long(length) => self.broken(format!("announced a message of {length} bytes, above the limit")),
            Unframed::Io(error) => Err(self.lost(&error)),
        }
    }

    fn lost(&self, error: &io::Error) -> Failure {
        let other = self.other();
        Failure::Broken(match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                format!(
                    "the {other} was silent for {}; it may be hung, or the network drops its packets",
                    time::show(self.timeout)
                )
            }
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted => {
                format!("the {other} disconnected: it ended or was stopped")
            }
            _ => format!("the connection to the {other} failed: {error}"),
        })
    }

    /// Returns the hello of the peer, which is its first frame.
    fn hello(&mut self, first: Result<Frame, Unframed>) -> Result<Hello, Failure> {
        let incompatible = |text: String| Err(Failure::Incompatible(text));
        let frame = match first {
            Ok(frame) => frame,
            Err(Unframed::Foreign(bytes)) => return incompatible(format!("the peer is {}", speaker(&bytes))),
            Err(Unframed::End(_)) => return Err(Failure::Unreachable(closed())),
            Err(Unframed::Io(error)) if is_reset(&error) => return Err(Failure::Unreachable(closed())),
            Err(other) => return self.unframed(other),
        };
        self.last_received = Instant::now();
        let hello = match Message::unpack(frame.kind, &frame.body) {
            Ok(Message::Hello(hello)) => Some(hello),
            _ => None,
        };
        if frame.protocol != PROTOCOL {
            let version = hello.map_or_else(|| "unknown version".to_owned(), |hello| short(hello.version));
            let ours = env!("CARGO_PKG_VERSION");
            return incompatible(format!(
                "the peer is stride-perf {version} with protocol {}, this is {ours} with protocol {PROTOCOL}; use the \
                 same version on both sides",
                frame.protocol
            ));
        }
        hello.map_or_else(|| self.broken("sent no hello"), Ok)
    }
}

/// Sends one message, and fails if that takes longer than `timeout`.
pub(super) fn write(wire: &mut dyn Wire, message: &Message, timeout: Duration) -> io::Result<()> {
    let frame = Frame { protocol: PROTOCOL, kind: message.kind(), body: message.pack()? };
    frame.write(wire, Deadline::after(timeout))
}

/// Reads and discards data until the peer closes the stream, or until `time` has passed.
fn linger(wire: &mut dyn Wire, time: Duration) {
    let deadline = Deadline::after(time);
    let mut bytes = [0; 4096];
    while read_some(wire, &mut bytes, deadline).is_ok_and(|count| count > 0) {}
}

fn closed() -> String {
    "the peer closed the connection before its hello; check that stride-perf listens on this port".to_owned()
}

fn is_reset(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted
    )
}

fn short(text: String) -> String {
    if text.len() <= MAX_TEXT { text } else { text.chars().take(MAX_TEXT).chain(['…']).collect() }
}
