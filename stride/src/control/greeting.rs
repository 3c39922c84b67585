//! The thread that accepts connections and reads their hellos, from all of them at the same time. A client occupies the
//! server once its hello has been read. A connection that sends nothing, or something else, therefore delays no client:
//! a port scanner, a health check, or a malicious peer. Such connections are limited in number, bytes and time.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::connection::{self, Connection};
use super::failure::Failure;
use super::frame::{Frame, Partial, Unframed};
use super::message::{Hello, Message};
use super::options::tune;

/// How many connections may be open whose hello has not arrived. A further connection closes the oldest of them.
pub(super) const MAX_PENDING: usize = 64;

/// Maximum length of a hello in bytes.
const LONGEST_HELLO: u32 = 4096;

/// How long the server may take to send its hello. The socket buffer of a new connection has enough space for it.
const SEND_TIMEOUT: Duration = Duration::from_millis(100);

/// How long to pause before the next `accept` if the system has no free descriptor.
const PAUSE: Duration = Duration::from_millis(100);

/// The address of the client that occupies the server, if any.
#[derive(Debug, Default)]
pub(super) struct Occupant(Mutex<Option<IpAddr>>);

impl Occupant {
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<IpAddr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client's address, and its connection or the failure of its handshake.
pub(super) type Greeted = (String, Result<Connection, Failure>);

/// A connection whose hello has not arrived yet.
struct Pending {
    stream: TcpStream,
    peer: IpAddr,
    hello: Partial,
    accepted: Instant,
}

impl Pending {
    /// Reads once. Returns the first frame if it has arrived, or the reason why it will not arrive.
    fn read(&mut self, timeout: Duration) -> Option<Result<Frame, Unframed>> {
        match self.hello.read(|into| self.stream.read(into)) {
            Err(Unframed::Io(error))
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Ok(None) => {}
            other => return other.transpose(),
        }
        (self.accepted.elapsed() >= timeout).then(|| Err(Unframed::Io(io::ErrorKind::TimedOut.into())))
    }
}

/// Accepts connections until the listener is shut down. If the server is free when the hello of a client has arrived,
/// passes the client on, otherwise rejects it.
pub(super) fn accept(listener: &TcpListener, timeout: Duration, occupant: &Occupant, clients: &SyncSender<Greeted>) {
    let mut pending = VecDeque::<Pending>::new();
    loop {
        wait(listener, &pending, timeout);
        for _ in 0..pending.len() {
            let Some(mut next) = pending.pop_front() else { break };
            match next.read(timeout) {
                None => pending.push_back(next),
                Some(first) => {
                    if !settle(next, first, timeout, occupant, clients) {
                        return;
                    }
                }
            }
        }
        match listener.accept() {
            Ok((stream, address)) if stream.set_nonblocking(true).is_ok() => {
                if pending.len() == MAX_PENDING {
                    pending.pop_front();
                }
                let (peer, hello) = (address.ip().to_canonical(), Partial::new(LONGEST_HELLO));
                pending.push_back(Pending { stream, peer, hello, accepted: Instant::now() });
            }
            Ok(_) => {}
            Err(error) => match error.kind() {
                // This error means that the listener was shut down.
                io::ErrorKind::InvalidInput => return,
                // No client waits, or one disconnected early.
                io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                // Descriptors are lacking.
                _ if pending.pop_front().is_none() => std::thread::sleep(PAUSE),
                _ => {}
            },
        }
    }
}

/// Waits until a connection or data arrives, or until the oldest connection has taken too long.
fn wait(listener: &TcpListener, pending: &VecDeque<Pending>, timeout: Duration) {
    let streams = pending.iter().map(|pending| PollFd::new(&pending.stream, PollFlags::IN));
    let mut all: Vec<_> = [PollFd::new(listener, PollFlags::IN)].into_iter().chain(streams).collect();
    let left = pending.front().map(|oldest| timeout.saturating_sub(oldest.accepted.elapsed()));
    // A millisecond more, so that the time has passed after the call.
    let left = left.and_then(|left| Timespec::try_from(left + Duration::from_millis(1)).ok());
    // Ignores the error, because the caller then reads in vain and calls again. A signal can interrupt the call.
    let _ = poll(&mut all, left.as_ref());
}

/// Rejects a client, or passes it on. Returns false if the server has ended.
fn settle(
    Pending { stream, peer, .. }: Pending,
    first: Result<Frame, Unframed>,
    timeout: Duration,
    occupant: &Occupant,
    clients: &SyncSender<Greeted>,
) -> bool {
    let mut occupant = occupant.lock();
    if let Some(other) = *occupant {
        if first.is_ok() {
            refuse(stream, format!("the server is busy with a test for {other}"));
        }
        return true;
    }
    if stream.set_nonblocking(false).is_err() {
        return true;
    }
    tune(&stream, timeout);
    match Connection::accept(stream, first, timeout) {
        Ok(connection) => {
            *occupant = Some(peer);
            drop(occupant);
            clients.send((peer.to_string(), Ok(connection))).is_ok()
        }
        // If many failures have not been reported yet, this one is not reported.
        Err(failure) => {
            !matches!(clients.try_send((peer.to_string(), Err(failure))), Err(TrySendError::Disconnected(_)))
        }
    }
}

/// Reports to a client that the server is busy. Its hello has been read, so closing the connection loses nothing.
fn refuse(mut stream: TcpStream, why: String) {
    let hello = Hello { version: env!("CARGO_PKG_VERSION").to_owned(), busy: Some(why) };
    // Ignores the error, because the client may have disconnected.
    let _ = connection::write(&mut stream, &Message::Hello(hello), SEND_TIMEOUT);
    // Dropping the stream would not be enough, because a worker thread may have a copy of the descriptor until the
    // thread ends.
    let _ = stream.shutdown(Shutdown::Write);
}
