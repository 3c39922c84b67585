//! The two ends of a connection: one thread receives, and any number of threads send.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use trespass::{Buf, Connection, Interest, Kind as TransportKind, Stats};

use super::fault::Faults;
use super::options::Options;
use crate::channel::{Block, BlockKind, Message, Opener, Sealer, TRAILER};
use crate::error::{Error, Kind, Result, is_deadline};
use crate::proto::{Batch, Failure, Frame, Frames};
use crate::silence::Silence;
use crate::thread::refused;

/// Frames wait no longer than this for others with which they are sent, if others are added.
const JOINED: Duration = Duration::from_millis(2);

/// An authenticated connection.
#[derive(Debug)]
pub struct Link {
    /// The sending end, which any thread can use.
    pub sender: Sender,
    /// The receiving end, which only one thread can use.
    pub receiver: Receiver,
}

/// Sends frames and blocks. Clones share the same connection.
#[derive(Clone, Debug)]
pub struct Sender {
    shared: Arc<Shared>,
    _alive: Arc<Alive>,
}

/// Receives frames and blocks.
#[derive(Debug)]
pub struct Receiver {
    shared: Arc<Shared>,
    opener: Opener,
    /// The frames of the last message that were not returned yet.
    frames: Frames,
}

/// A received frame or block.
#[derive(Debug)]
pub enum Received {
    /// A control frame.
    Frame(Frame),
    /// A block with its payload. The hash is not verified yet.
    Block(Block, Payload),
}

/// The payload of a received block.
#[derive(Debug)]
pub struct Payload {
    buffer: Buf,
    length: usize,
}

impl std::ops::Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

#[derive(Debug)]
struct Shared {
    connection: Connection,
    /// The name of the peer, for errors.
    peer: OnceLock<String>,
    state: Mutex<State>,
    /// The time at which the last message was received.
    heard: Mutex<Instant>,
    over: Mutex<bool>,
    ended: Condvar,
    timeout: Duration,
    encrypts: bool,
}

#[derive(Debug)]
struct State {
    sealer: Sealer,
    /// The frames that are sent with the next message, and the time since which the first of them waits.
    waiting: Batch,
    since: Instant,
    sent: Instant,
    faults: Option<Faults>,
}

/// Ends the thread that sends pings. Dropping this value waits for the thread, so the connection is closed properly
/// before the process exits.
#[derive(Debug)]
struct Alive(Arc<Shared>, Option<JoinHandle<()>>);

impl Drop for Alive {
    fn drop(&mut self) {
        *lock(&self.0.over) = true;
        self.0.ended.notify_all();
        if let Some(thread) = self.1.take() {
            // The thread only sends pings, so its result is ignored.
            _ = thread.join();
        }
    }
}

impl Link {
    pub(super) fn new(
        connection: Connection,
        (sealer, mut opener): (Sealer, Opener),
        options: &Options,
    ) -> Result<Link> {
        let is_tcp = connection.stats()?.transport == TransportKind::Tcp;
        if options.encrypt == Some(true) {
            opener.require_sealed();
        }
        let (now, waiting) = (Instant::now(), Batch::default());
        let state = State { sealer, waiting, since: now, sent: now, faults: options.fault.map(Faults::new) };
        let shared = Arc::new(Shared {
            connection,
            peer: OnceLock::new(),
            state: Mutex::new(state),
            heard: Mutex::new(Instant::now()),
            over: Mutex::new(false),
            ended: Condvar::new(),
            timeout: options.timeout,
            encrypts: options.encrypt.unwrap_or(is_tcp),
        });
        let pinging = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("pings".to_owned())
            .spawn(move || pinging.ping())
            .map_err(|error| refused(&error))?;
        let receiver = Receiver { shared: Arc::clone(&shared), opener, frames: Frames::default() };
        let sender = Sender { _alive: Arc::new(Alive(Arc::clone(&shared), Some(thread))), shared };
        Ok(Link { sender, receiver })
    }

    /// Gives the peer a name, which precedes the errors of the connection and those that the peer reports.
    pub fn name_peer(&self, name: &str) {
        self.receiver.shared.peer.get_or_init(|| name.to_owned());
    }

    /// Returns the transport of the connection.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub fn stats(&self) -> Result<Stats> {
        Ok(self.receiver.shared.connection.stats()?)
    }

    /// Receives a frame; returns an error if a block arrives.
    ///
    /// # Errors
    ///
    /// See [`Receiver::receive`].
    pub fn frame(&mut self) -> Result<Frame> {
        match self.receiver.receive()? {
            Received::Frame(frame) => Ok(frame),
            Received::Block(..) => Err(Error::protocol("the peer sent a block instead of a frame")),
        }
    }
}

impl Sender {
    /// Allocates a buffer for a block with a payload of this length.
    pub fn buffer(&self, payload: usize) -> Buf {
        self.shared.connection.alloc(payload + TRAILER)
    }

    /// Sends a control frame.
    ///
    /// # Errors
    ///
    /// The connection broke, or the peer accepted no data for longer than the time-out.
    pub fn frame(&self, frame: &Frame) -> Result<()> {
        self.shared.control(&mut lock(&self.shared.state), &frame.emit())
    }

    /// Sends an encoded control frame together with others: with the next message of this side, or when they are long
    /// enough, or when [`Sender::send_waiting`] is called.
    ///
    /// # Errors
    ///
    /// See [`Sender::frame`].
    pub fn later(&self, frame: &[u8]) -> Result<()> {
        let mut state = lock(&self.shared.state);
        let is_first = state.waiting.is_empty();
        self.shared.join(&mut state, frame)?;
        if is_first {
            state.since = Instant::now();
        } else if state.since.elapsed() > JOINED {
            self.shared.send_waiting(&mut state)?;
        }
        Ok(())
    }

    /// Sends the frames that wait.
    ///
    /// # Errors
    ///
    /// See [`Sender::frame`].
    pub fn send_waiting(&self) -> Result<()> {
        self.shared.send_waiting(&mut lock(&self.shared.state))
    }

    /// Sends a block: the first `payload` bytes of a buffer from [`Sender::buffer`].
    ///
    /// # Errors
    ///
    /// See [`Sender::frame`].
    pub fn block(&self, block: &Block, buffer: Buf, payload: usize) -> Result<()> {
        self.after_frame(None, block, buffer, payload)
    }

    /// Sends the list of a pack, then the pack.
    ///
    /// # Errors
    ///
    /// See [`Sender::frame`].
    pub fn pack(&self, list: &Frame, block: &Block, buffer: Buf, payload: usize) -> Result<()> {
        self.after_frame(Some(list), block, buffer, payload)
    }

    fn after_frame(&self, frame: Option<&Frame>, block: &Block, mut buffer: Buf, payload: usize) -> Result<()> {
        buffer.truncate(payload + TRAILER);
        let mut state = lock(&self.shared.state);
        // What waits comes before the block, such as the list of its file.
        if let Some(frame) = frame {
            self.shared.join(&mut state, &frame.emit())?;
        }
        self.shared.send_waiting(&mut state)?;
        state.sealer.block(block, &mut buffer, self.shared.encrypts);
        match &mut state.faults {
            None => self.shared.send(&mut state, buffer),
            Some(faults) => faults.inject(buffer, payload).try_for_each(|buffer| self.shared.send(&mut state, buffer)),
        }
    }

    /// Forwards a received block. If it is a pack, sends its list first.
    ///
    /// # Errors
    ///
    /// See [`Sender::frame`].
    pub fn forward(&self, list: Option<&Frame>, block: &Block, payload: Payload) -> Result<()> {
        self.after_frame(list, block, payload.buffer, payload.length)
    }

    /// Ends this side's direction of the connection, without sending a reason.
    pub fn shut_down(&self) {
        // Ignores the error: the connection may be broken already.
        _ = self.shared.connection.shutdown();
    }

    /// Whether this side encrypts the payload of blocks.
    pub fn encrypts(&self) -> bool {
        self.shared.encrypts
    }

    /// Reports a failure to the peer in the last frame, unless the connection is broken already.
    pub fn abort(&self, error: &Error) {
        _ = self.frame(&Frame::Abort(Failure::from(error)));
    }

    /// Waits until the peer's device has acknowledged everything, at most for the time-out.
    pub fn flush(&self) {
        // Ignores the error: if the connection breaks, no acknowledgement arrives.
        _ = self.shared.connection.flush_until(Some(Instant::now() + self.shared.timeout));
    }
}

impl Shared {
    /// Sends a frame, after those that wait.
    fn control(&self, state: &mut State, frame: &[u8]) -> Result<()> {
        self.join(state, frame)?;
        self.send_waiting(state)
    }

    /// Adds a frame to those that wait.
    fn join(&self, state: &mut State, frame: &[u8]) -> Result<()> {
        if state.waiting.push(frame) {
            self.send_waiting(state)?;
            _ = state.waiting.push(frame);
        }
        Ok(())
    }

    fn send_waiting(&self, state: &mut State) -> Result<()> {
        let Some(frames) = state.waiting.take() else { return Ok(()) };
        let message = state.sealer.control(&frames);
        match self.connection.try_send(&message) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut buffer = self.connection.alloc(message.len());
                buffer.copy_from_slice(&message);
                self.send_later(buffer)?;
            }
            sent => sent.map_err(|error| failed(&error, self.timeout))?,
        }
        state.sent = Instant::now();
        Ok(())
    }

    fn send(&self, state: &mut State, buffer: Buf) -> Result<()> {
        match self.connection.try_send_buf(buffer) {
            Err((error, buffer)) if error.kind() == io::ErrorKind::WouldBlock => self.send_later(buffer)?,
            sent => sent.map_err(|(error, _)| self.failed(&error))?,
        }
        state.sent = Instant::now();
        Ok(())
    }

    /// Waits for space in the send queue as long as the peer sends pings, because the peer's output may be paused.
    fn send_later(&self, buffer: Buf) -> Result<()> {
        let (mut silence, mut heard) = (Silence::new(self.timeout), *lock(&self.heard));
        let has_room = |until| trespass::poll(&[Interest::Room(&self.connection)], Some(until));
        let mut until = Instant::now();
        while let Some(ready) = silence.step(has_room) {
            if ready.map_err(|error| self.failed(&error))?.contains(&true) {
                until = Instant::now() + self.timeout;
                break;
            }
            let last = *lock(&self.heard);
            if last > heard {
                (silence, heard) = (Silence::new(self.timeout), last);
            }
        }
        self.connection.send_buf_until(buffer, Some(until)).map_err(|error| self.failed(&error))
    }

    /// The error of a failed call on the connection.
    fn failed(&self, error: &io::Error) -> Error {
        self.of_peer(failed(error, self.timeout))
    }

    fn of_peer(&self, error: Error) -> Error {
        error.on(self.peer.get().map_or("", String::as_str))
    }

    /// Sends a ping if nothing was sent for a quarter of the time-out. No ping is needed while a thread waits to send.
    fn ping(&self) {
        let pause = (self.timeout / 4).max(Duration::from_millis(10));
        let mut over = lock(&self.over);
        loop {
            // Tests the flag before it waits, because the flag may be set already.
            let waited = self.ended.wait_timeout_while(over, pause, |over| !*over);
            over = waited.map_or_else(|error| error.into_inner().0, |(over, _)| over);
            if *over {
                return;
            }
            if let Ok(mut state) = self.state.try_lock()
                && state.sent.elapsed() >= pause
                && self.control(&mut state, &Frame::Ping.emit()).is_err()
            {
                return;
            }
        }
    }
}

impl Receiver {
    /// Waits for the next block, or the next frame other than a ping.
    ///
    /// # Errors
    ///
    /// The peer was silent for too long, closed or aborted the connection, or the message was altered.
    pub fn receive(&mut self) -> Result<Received> {
        loop {
            if self.frames.is_empty() {
                let Some(message) = self.message()? else {
                    let text = "the peer ended the connection before the transfer was complete";
                    return Err(self.shared.of_peer(Error::new(Kind::Broken, text)));
                };
                *lock(&self.shared.heard) = Instant::now();
                match self.opener.open(message)? {
                    Message::Control(bytes) => self.frames = Frames::new(bytes),
                    Message::Block(block, buffer, length) => {
                        return Ok(Received::Block(block, Payload { buffer, length }));
                    }
                }
            }
            match self.frames.take()? {
                Frame::Ping => {}
                Frame::Abort(failure) => return Err(self.shared.of_peer(aborted(failure))),
                frame => return Ok(Received::Frame(frame)),
            }
        }
    }

    /// Whether the next call of [`Receiver::receive`] waits for a message.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Receives until the peer closes the connection.
    pub(super) fn wait_for_close(&mut self) -> Result<()> {
        while self.message()?.is_some() {}
        Ok(())
    }

    /// Returns the next message; `None` if the peer has closed the connection.
    fn message(&self) -> Result<Option<Buf>> {
        let mut silence = Silence::new(self.shared.timeout);
        let mut last = None;
        while let Some(received) = silence.step(|until| self.shared.connection.recv_until(Some(until))) {
            match received {
                Err(error) if is_deadline(&error) => last = Some(error),
                received => return received.map_err(|error| self.shared.failed(&error)),
            }
        }
        Err(self.shared.failed(&last.unwrap_or_else(|| io::ErrorKind::TimedOut.into())))
    }
}

/// Compares a block with its hash.
pub(crate) fn verify(block: &Block, payload: &[u8]) -> Result<()> {
    if block.matches(payload) {
        return Ok(());
    }
    let what = if block.kind == BlockKind::Pack { "a pack of files" } else { "a block" };
    Err(Error::protocol(format!(
        "{what} was altered in transit: its XXH3 differs at offset {}; start again",
        block.offset
    )))
}

/// The reason that the peer has sent.
fn aborted(failure: Failure) -> Error {
    let error = Error::from(failure);
    // A skipped entry is no failure, so as a reason to stop it would end the copy with 0.
    let is_skipped = error.kind() == Kind::Skipped;
    let error = if is_skipped { Error::protocol(error.to_string()) } else { error };
    // The path of a file is enough, as in the error of an entry.
    let is_complete = error.kind() == Kind::File;
    if is_complete { error } else { error.within("the peer failed") }
}

fn failed(error: &io::Error, timeout: Duration) -> Error {
    if is_deadline(error) {
        let text = format!(
            "the peer was silent for {} s; check that it is not stopped, or raise --timeout",
            timeout.as_secs()
        );
        return Error::new(Kind::TimedOut, text);
    }
    match error.kind() {
        io::ErrorKind::TimedOut => Error::new(Kind::Lost, "the peer's host does not answer; check the network"),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            Error::new(Kind::Broken, "the connection broke: the peer's process ended")
        }
        _ => Error::new(Kind::Broken, format!("the connection broke: {}", crate::error::reason(error))),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
