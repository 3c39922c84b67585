//! A server, which serves one client at a time. A client occupies the server once its hello has been read. Clients that
//! connect during a test receive a report that the server is busy. While the server waits for the hello of an earlier
//! connection, later clients wait too: the first of them in `accept`, the others in the backlog of the socket. A port
//! scanner or a health check therefore delays clients, but does not block them.

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

/// How long a client may take to send its hello, which a genuine client sends at once. The next client has to wait for
/// this time at most, which is less than the shortest `--timeout` of a client.
const HELLO_TIMEOUT: Duration = Duration::from_millis(500);

/// How long the server may take to send its report to a rejected client. The socket buffer of a new connection has
/// enough space for it.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(100);

/// How many connections to rejected clients stay open. The server does not wait for the hello of a rejected client,
/// because an idle connection would delay the next client. If the server closed the connection while the hello is
/// unread, the report could be lost.
const MAX_REFUSED: usize = 16;

/// How long to pause before the next `accept` if the system has no free descriptor.
const PAUSE: Duration = Duration::from_millis(100);

/// A handle that can stop a server from any thread.
#[derive(Debug)]
pub struct Stop(TcpListener);

impl Stop {
    /// Creates a handle for the server that listens on this socket.
    ///
    /// # Errors
    ///
    /// Returns any error of the system.
    pub fn new(listener: &TcpListener) -> io::Result<Self> {
        listener.try_clone().map(Self)
    }

    /// Stops the server, which accepts no further client and ends after the current one.
    pub fn stop(&self) {
        // Ignores the error, because the listener may already be shut down.
        let _ = SockRef::from(&self.0).shutdown(Shutdown::Both);
    }
}

/// Stops the server on drop, also after a panic, because otherwise the accepting thread would never end.
struct StopAtEnd(Stop);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Serves one client after another until the server is stopped. With `is_one_off`, it ends after one test.
///
/// # Errors
///
/// With `is_one_off`, returns the failure of the test. Otherwise each failure is reported as an [`Event`], and the
/// server continues with the next client.
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
        // These two guards are dropped in reverse order. The listener is therefore shut down first, and then `accept`
        // no longer waits for a hello.
        let _release = Release(current);
        let _stop = stop;
        // The channel of clients closes when this thread ends.
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

/// The connection that occupies the server, if any.
#[derive(Debug, Default)]
enum Occupant {
    /// No connection occupies the server.
    #[default]
    Free,
    /// A connection whose hello has not arrived yet.
    Handshake,
    /// The client at this address, whose test runs.
    Client(String),
}

/// The connection that occupies the server, and a condition variable that is notified when this changes.
#[derive(Debug, Default)]
struct Current(Mutex<Occupant>, Condvar);

impl Current {
    fn set(&self, occupant: Occupant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = occupant;
        self.1.notify_all();
    }

    /// Waits until no hello is pending, which takes at most [`HELLO_TIMEOUT`], and returns the occupant.
    fn settled(&self) -> MutexGuard<'_, Occupant> {
        let occupant = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_pending = |occupant: &mut Occupant| matches!(occupant, Occupant::Handshake);
        self.1.wait_while(occupant, is_pending).unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks the server as free for the next client on drop.
struct Release<'a>(&'a Current);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.set(Occupant::Free);
    }
}

/// Serves a client. Returns whether the client requested a test, and the result of serving it.
fn serve_client(
    stream: TcpStream,
    peer: String,
    factory: &dyn EndpointFactory,
    host: &Host,
    timeout: Duration,
    report: &mut dyn FnMut(Event),
    current: &Current,
) -> (bool, Result<(), Failure>) {
    // These two values are dropped in reverse order. The connection therefore closes after the server is free, so a
    // client that sees the connection close can reconnect at once.
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

/// Accepts connections until the listener is shut down. If the server is free, passes the client on, otherwise rejects
/// it.
fn accept(listener: &TcpListener, current: &Current, clients: &Sender<(TcpStream, String)>) {
    let mut refused = Refused::default();
    loop {
        let (stream, address) = match listener.accept() {
            Ok(client) => client,
            // This error means that the listener was shut down.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => break,
            Err(error) => {
                // Pauses if descriptors are lacking, but not if a client disconnected early.
                if error.kind() != io::ErrorKind::ConnectionAborted && error.kind() != io::ErrorKind::Interrupted {
                    std::thread::sleep(PAUSE);
                }
                continue;
            }
        };
        let peer = address.ip().to_canonical().to_string();
        let mut occupant = current.settled();
        // The listener may have been shut down while this thread waited.
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

/// The connections to the clients that were rejected most recently.
#[derive(Default)]
struct Refused(VecDeque<TcpStream>);

impl Refused {
    /// Reports to a client that the server is busy. If too many rejected connections are open, closes the oldest one.
    fn refuse(&mut self, mut stream: TcpStream, why: String) {
        let hello = Hello { version: env!("CARGO_PKG_VERSION").to_owned(), busy: Some(why) };
        // Ignores the error, because the client may have disconnected.
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
    // Dropping the stream would not be enough, because a worker thread may have a copy of the descriptor until the
    // thread ends.
    let _ = stream.shutdown(Shutdown::Both);
}
