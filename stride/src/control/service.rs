//! A server, with one client at a time. A client occupies the server when its hello is read. Clients that connect
//! during a test receive a report that the server is busy. While the hello of an earlier connection is pending, they
//! wait: the first in `accept`, the others in the backlog of the socket. A port scanner or a health check therefore
//! delays clients, but does not block them.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use socket2::SockRef;

use super::connection::{self, Connection};
use super::failure::Failure;
use super::message::{Hello, Message};
use super::options::tune;
use super::server::{Event, Host, serve_one};
use crate::endpoint::{EndpointFactory, Role};

/// How long a client may take to send its hello; clients send it at once. The next client waits until then, for less
/// than the shortest `--timeout` of a client.
const HELLO_TIMEOUT: Duration = Duration::from_millis(500);

/// How long the report to a rejected client may take; a new connection has enough buffer space for it.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(100);

/// How many connections to rejected clients stay open. The server does not wait for their hello, because an idle
/// connection would delay the next client. Closing one at once could discard the report while the hello is unread.
const MAX_REFUSED: usize = 16;

/// Pause before the next `accept`, if the system has no free descriptor.
const PAUSE: Duration = Duration::from_millis(100);

/// Stops a server, from any thread.
#[derive(Debug)]
pub struct Stop(TcpListener);

impl Stop {
    /// Stops the server that listens on this socket.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn new(listener: &TcpListener) -> io::Result<Self> {
        listener.try_clone().map(Self)
    }

    /// Stops the server: it accepts no further client, and ends after the current one.
    pub fn stop(&self) {
        // The listener may already be shut down.
        let _ = SockRef::from(&self.0).shutdown(Shutdown::Both);
    }
}

/// Stops the server also after a panic; the accepting thread would not end otherwise.
struct StopAtEnd(Stop);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Serves one client after another, until stopped, or until one test has run.
///
/// # Errors
///
/// With `is_one_off`, the failure of the test. Otherwise each failure is an [`Event`], and the next client is served.
pub fn serve(
    listener: &TcpListener,
    factory: &dyn EndpointFactory,
    host: &Host,
    timeout: Duration,
    is_one_off: bool,
    report: &mut dyn FnMut(Event),
) -> Result<(), Failure> {
    let stop = StopAtEnd(Stop::new(listener).map_err(|error| Failure::Ours(error.into()))?);
    let current = Current::default();
    let (sender, clients) = channel();
    std::thread::scope(|scope| {
        let current = &current;
        // These two are dropped in reverse order: `accept` stops waiting for a hello once the listener is shut down.
        let _release = Release(current);
        let _stop = stop;
        // The channel closes when the thread ends.
        scope.spawn(move || accept(listener, current, &sender));
        for (stream, peer) in clients {
            let (has_asked, result) = serve_client(stream, peer, factory, host, timeout, report, current);
            if is_one_off && has_asked {
                return result;
            }
            if let Err(failure) = result {
                report(Event::Failed(failure.to_string()));
            }
        }
        Ok(())
    })
}

/// The client that occupies the server.
#[derive(Debug, Default)]
enum Occupant {
    /// None.
    #[default]
    Free,
    /// A connection whose hello is pending.
    Handshake,
    /// The client at this address.
    Client(String),
}

/// The client that currently occupies the server, and a notification of changes.
#[derive(Debug, Default)]
struct Current(Mutex<Occupant>, Condvar);

impl Current {
    fn set(&self, occupant: Occupant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = occupant;
        self.1.notify_all();
    }

    /// Waits until no hello is pending, at most [`HELLO_TIMEOUT`], and returns the occupant.
    fn settled(&self) -> MutexGuard<'_, Occupant> {
        let occupant = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_pending = |occupant: &mut Occupant| matches!(occupant, Occupant::Handshake);
        self.1.wait_while(occupant, is_pending).unwrap_or_else(PoisonError::into_inner)
    }
}

/// Frees the server for the next client on drop.
struct Release<'a>(&'a Current);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.set(Occupant::Free);
    }
}

/// Serves a client. Returns whether the client requested a test, and the result.
fn serve_client(
    stream: TcpStream,
    peer: String,
    factory: &dyn EndpointFactory,
    host: &Host,
    timeout: Duration,
    report: &mut dyn FnMut(Event),
    current: &Current,
) -> (bool, Result<(), Failure>) {
    // Dropped in reverse order: the connection closes after the server is free, so the client can reconnect at once.
    let _open = stream.try_clone();
    let _release = Release(current);
    report(Event::Client(peer.clone()));
    tune(&stream, timeout);
    let connection = match Connection::handshake(stream, Role::Server, timeout.min(HELLO_TIMEOUT)) {
        Ok((connection, _)) => connection.with_timeout(timeout),
        Err(failure) => return (false, Err(failure)),
    };
    current.set(Occupant::Client(peer));
    let mut has_asked = false;
    let result = serve_one(connection, factory, host, &mut |event| {
        has_asked |= matches!(event, Event::Asked(_));
        report(event);
    });
    (has_asked, result)
}

/// Accepts connections until the listener is shut down. Passes a client on if the server is free, otherwise rejects it.
fn accept(listener: &TcpListener, current: &Current, clients: &Sender<(TcpStream, String)>) {
    let mut refused = Refused::default();
    loop {
        let (stream, address) = match listener.accept() {
            Ok(client) => client,
            // The listener was shut down.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => break,
            Err(error) => {
                // A client that disconnected early is no reason to pause; a lack of descriptors is.
                if error.kind() != io::ErrorKind::ConnectionAborted && error.kind() != io::ErrorKind::Interrupted {
                    std::thread::sleep(PAUSE);
                }
                continue;
            }
        };
        let peer = address.ip().to_canonical().to_string();
        let mut occupant = current.settled();
        // The listener may have been shut down since.
        if !SockRef::from(listener).is_listener().unwrap_or(true) {
            break;
        }
        if let Occupant::Client(other) = &*occupant {
            let why = format!("the server is busy with a test for {other}");
            drop(occupant);
            refused.refuse(stream, why);
            continue;
        }
        *occupant = Occupant::Handshake;
        drop(occupant);
        if clients.send((stream, peer)).is_err() {
            break;
        }
    }
}

/// The connections to the last rejected clients.
#[derive(Default)]
struct Refused(VecDeque<TcpStream>);

impl Refused {
    /// Reports to a client that the server is busy. Closes the oldest connection if there are too many.
    fn refuse(&mut self, mut stream: TcpStream, why: String) {
        let hello = Hello { version: env!("CARGO_PKG_VERSION").to_owned(), busy: Some(why) };
        // The client may have disconnected.
        let _ = connection::write(&mut stream, &Message::Hello(hello), REFUSAL_TIMEOUT);
        let _ = stream.shutdown(Shutdown::Write);
        self.0.push_back(stream);
        if self.0.len() > MAX_REFUSED {
            self.0.pop_front().iter_mut().for_each(close);
        }
    }
}

impl Drop for Refused {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(close);
    }
}

/// Closes the connection to a rejected client, after reading its hello if that has arrived.
fn close(stream: &mut TcpStream) {
    let _ = stream.set_nonblocking(true).and_then(|()| stream.read(&mut [0; 4096]));
    // Dropping the stream is not enough: a worker thread may have a copy of the descriptor until the thread ends.
    let _ = stream.shutdown(Shutdown::Both);
}
