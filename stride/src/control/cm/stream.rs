//! A stream of bytes over a connection.
//!
//! ```text
//! a send    bytes 0..2   how many receives were posted anew since the last one, big-endian
//!                 2..4   zero
//!                 4..    bytes of the stream; none, where only receives are told of
//! ```

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sideway::ibverbs::completion::WorkCompletionStatus;
use sideway::rdmacm::Connection;

use super::credit::Credit;
use super::ear::Ear;
use super::hail::Hail;
use super::link::{Done, Link, SIZE, Wanted};
use crate::control::wire::Wire;

/// Bytes before those of the stream.
const HEADER: usize = 4;
/// Bytes that are taken in before somebody reads them; what comes then waits in its receives, and the other side for these.
const ROOM: usize = 1 << 16;
/// For how long what was written last may take to arrive.
const LAST: Duration = Duration::from_secs(1);

/// Ends a connection when the last who holds it lets it go.
#[derive(Debug)]
pub(in crate::control) struct Ending(Connection);

impl Drop for Ending {
    fn drop(&mut self) {
        // The other side may have done so, or be gone.
        if let Err(error) = self.0.identifier().disconnect() {
            log::debug!("{error}");
        }
    }
}

/// A stream of bytes over a connection.
#[derive(Debug)]
pub(in crate::control) struct Stream {
    link: Link,
    ending: Arc<Ending>,
    credit: Credit,
    /// The most bytes of a send, with its header.
    largest: usize,
    /// Places that nothing is sent from.
    free: Vec<u16>,
    /// Places where bytes have come that nobody has taken in, with the length.
    came: VecDeque<(u16, usize)>,
    inbox: VecDeque<u8>,
    limit: Duration,
    /// For who sleeps until something comes.
    ear: Option<Ear>,
    /// The other side ended it, or the queue pair has failed.
    is_over: bool,
    /// What the other side has said and must not.
    fault: Option<&'static str>,
}

impl Stream {
    /// Of a connection that is there, with a side that hails so.
    pub(super) fn new(link: Link, connection: Connection, theirs: Hail) -> Self {
        let places = link.places();
        Self {
            link,
            ending: Arc::new(Ending(connection)),
            credit: Credit::new(places, theirs.receives),
            largest: theirs.size.min(SIZE) as usize,
            free: (0..places).collect(),
            came: VecDeque::new(),
            inbox: VecDeque::new(),
            limit: Duration::from_secs(3600),
            ear: None,
            is_over: false,
            fault: None,
        }
    }

    /// The addresses of this side and of the other.
    pub(in crate::control) fn addresses(&self) -> [Option<IpAddr>; 2] {
        let ip = |address: Option<SocketAddr>| address.map(|address| address.ip().to_canonical());
        let Ending(connection) = &*self.ending;
        [ip(connection.local_address()), ip(connection.peer_address())]
    }

    /// Keeps the connection from its end, which the other side waits for.
    pub(in crate::control) fn kept(&self) -> Arc<Ending> {
        Arc::clone(&self.ending)
    }

    /// Whether something comes within this time, which may be the end.
    pub(in crate::control) fn speaks(&mut self, time: Duration) -> io::Result<bool> {
        match self.wait(time, |stream| !stream.inbox.is_empty()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits until this is so, or the stream is over.
    fn wait(&mut self, time: Duration, is_so: impl Fn(&Self) -> bool) -> io::Result<()> {
        let begin = Instant::now();
        loop {
            self.take_in()?;
            if is_so(self) || self.is_over {
                // The event that was there is not any more.
                return self.look().map(drop);
            }
            // What came before an event was asked for raises none.
            if self.link.ask(Wanted::Any)? {
                continue;
            }
            let left = time.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.sleep(left)?;
        }
    }

    /// Sleeps until something completes, or the connection has news.
    fn sleep(&mut self, time: Duration) -> io::Result<()> {
        let news = self.ending.0.event_channel();
        let bell = self.link.bell();
        let mut both = [PollFd::new(&bell, PollFlags::IN), PollFd::from_borrowed_fd(news.as_fd(), PollFlags::IN)];
        let time = Timespec::try_from(time).ok();
        match poll(&mut both, time.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => self.link.hear(),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether there is something to be read. Who listens hears of it, or will.
    fn look(&mut self) -> io::Result<bool> {
        loop {
            let has_input = !self.inbox.is_empty() || self.is_over;
            let Some(ear) = &mut self.ear else { return Ok(has_input) };
            // What came before an event was asked for raises none.
            if has_input || !self.link.ask(Wanted::Bytes)? {
                ear.set(has_input);
                return Ok(has_input);
            }
            self.take_in()?;
        }
    }

    /// Takes in what has come, as far as there is room, and tells the other side where it waits for that.
    fn take_in(&mut self) -> io::Result<()> {
        // First: what was sent before the end is there by then.
        self.is_over = self.is_over || self.ending.0.is_ended();
        let mut messages = Vec::new();
        let (free, is_over) = (&mut self.free, &mut self.is_over);
        self.link.poll(|done| match done {
            Done::Sent(place) => free.push(place),
            Done::Came(place, length) => messages.push((place, length as usize)),
            Done::Failed(status) => {
                if status != WorkCompletionStatus::WorkRequestFlushedError {
                    log::debug!("the sides' connection of rdma_cm: {status}");
                }
                *is_over = true;
            }
        })?;
        for (place, length) in messages {
            self.unpack(place, length)?;
        }
        while self.inbox.len() < ROOM
            && let Some((place, length)) = self.came.pop_front()
        {
            let mut bytes = vec![0; length];
            self.link.read(place, &mut bytes)?;
            self.inbox.extend(bytes.iter().skip(HEADER));
            self.again(place);
            self.credit.owe();
        }
        if self.credit.is_due() && !self.is_over && !self.free.is_empty() {
            self.post(&[]);
        }
        self.fault.map_or(Ok(()), |fault| Err(io::Error::new(io::ErrorKind::InvalidData, fault)))
    }

    /// Looks at the header of a message.
    fn unpack(&mut self, place: u16, length: usize) -> io::Result<()> {
        let mut header = [0; HEADER];
        self.link.read(place, &mut header)?;
        let [c0, c1, z0, z1] = header;
        let earned = self.credit.earn(u16::from_be_bytes([c0, c1]));
        if length < HEADER || [z0, z1] != [0, 0] || earned.is_err() {
            self.fault = Some("what came over rdma_cm is no part of a stream: it is no stride-perf that sends it");
        } else if length > HEADER {
            self.came.push_back((place, length));
        } else {
            self.again(place);
        }
        Ok(())
    }

    /// Posts a receive anew.
    fn again(&mut self, place: u16) {
        if !self.is_over
            && let Err(error) = self.link.receive(place)
        {
            log::debug!("the sides' connection of rdma_cm: {error}");
            self.is_over = true;
        }
    }

    /// Sends bytes that fit, from a place that is free.
    fn post(&mut self, bytes: &[u8]) {
        let Some(place) = self.free.pop() else { return };
        let [c0, c1] = self.credit.settle().to_be_bytes();
        if let Err(error) = self.link.send(place, [&[c0, c1, 0, 0], bytes]) {
            log::debug!("the sides' connection of rdma_cm: {error}");
            self.is_over = true;
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.wait(self.limit, |stream| !stream.inbox.is_empty())?;
        self.inbox.read(into)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(self.limit, |stream| stream.credit.may_send() && !stream.free.is_empty())?;
        let count = bytes.len().min(self.largest - HEADER);
        if !self.is_over {
            self.credit.spend();
            self.post(bytes.get(..count).unwrap_or_default());
        }
        if self.is_over { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(count) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Wire for Stream {
    fn limit(&mut self, time: Duration) -> io::Result<()> {
        self.limit = time;
        Ok(())
    }

    fn has_input(&mut self) -> io::Result<bool> {
        if self.ear.is_some() {
            self.link.hear()?;
        }
        self.take_in()?;
        self.look()
    }

    fn ear(&mut self) -> Option<OwnedFd> {
        // Where no file is left the step has none of its own either, and says so.
        if self.ear.is_none() {
            let news = self.ending.0.event_channel();
            self.ear = Ear::new([self.link.bell(), news.as_fd()]).ok();
        }
        // An error is found by who looks.
        let _ = self.has_input();
        self.ear.as_ref()?.file().ok()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // What was written last has to arrive before the queue pair goes.
        if self.fault.is_none()
            && let Err(error) = self.wait(LAST, |stream| stream.free.len() == usize::from(stream.link.places()))
        {
            log::debug!("what was said last over rdma_cm may not have arrived: {error}");
        }
    }
}
