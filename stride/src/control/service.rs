//! A server: one client at a time. A connection has the server once its hello is read. Clients that connect during a test read that the
//! server is busy. Until the hello of an earlier connection is read they wait, the first of them in `accept`, the others in the backlog of
//! the socket: a port scanner or a health check delays them, and does not keep them out.

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

/// How long a client that has connected may take to send its hello: clients send it at once. The next client waits until then, for less
/// than the least `--timeout` of a client.
const HELLO_TIMEOUT: Duration = Duration::from_millis(500);

/// How long the report to a client that is refused may take: there is room for it in a connection that is new.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(100);

/// How many connections to refused clients stay open. The server does not wait for their hello: an idle connection would delay the next
/// client. Closing one at once could discard the report, as the hello is unread then.
const MAX_REFUSED: usize = 16;

/// How long the server waits before it accepts again, if the system has no descriptor for a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Ends a server, from any thread.
#[derive(Debug)]
pub struct Stop(TcpListener);

impl Stop {
    /// For the server that listens there.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn new(listener: &TcpListener) -> io::Result<Self> {
        listener.try_clone().map(Self)
    }

    /// The server accepts no further client, and ends after the current one.
    pub fn stop(&self) {
        // It may have been shut down already.
        let _ = SockRef::from(&self.0).shutdown(Shutdown::Both);
    }
}

/// Stops the server also if a panic ends it: the thread that accepts would stay otherwise.
struct StopAtEnd(Stop);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Serves one client after another until it is stopped, or until one has had its test.
///
/// # Errors
///
/// With `is_one_off` what failed in the test. Without it each failure is an [`Event`], and the next client is served.
pub fn serve(
    listener: &TcpListener,
    factory: &dyn EndpointFactory,
    host: &Host,
    timeout: Duration,
    is_one_off: bool,
    tell: &mut dyn FnMut(Event),
) -> Result<(), Failure> {
    let stop = StopAtEnd(Stop::new(listener).map_err(|error| Failure::Ours(error.into()))?);
    let current = Current::default();
    let (sender, clients) = channel();
    std::thread::scope(|scope| {
        let current = &current;
        // Dropped in reverse: `accept` wakes from its wait for a hello once the listener is shut down.
        let _release = Release(current);
        let _stop = stop;
        // The channel ends with the thread.
        scope.spawn(move || accept(listener, current, &sender));
        for (stream, peer) in clients {
            let (has_asked, result) = serve_client(stream, peer, factory, host, timeout, tell, current);
            if is_one_off && has_asked {
                return result;
            }
            if let Err(failure) = result {
                tell(Event::Failed(failure.to_string()));
            }
        }
        Ok(())
    })
}

/// Which client has the server.
#[derive(Debug, Default)]
enum Occupant {
    /// None.
    #[default]
    Free,
    /// The hello of a connection is due.
    Greeting,
    /// The client at this address.
    Client(String),
}

/// The current occupant, and a notification for each change.
#[derive(Debug, Default)]
struct Current(Mutex<Occupant>, Condvar);

impl Current {
    fn set(&self, occupant: Occupant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = occupant;
        self.1.notify_all();
    }

    /// The occupant, once no hello is due: [`HELLO_TIMEOUT`] bounds the wait.
    fn settled(&self) -> MutexGuard<'_, Occupant> {
        let occupant = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_greeting = |occupant: &mut Occupant| matches!(occupant, Occupant::Greeting);
        self.1.wait_while(occupant, is_greeting).unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the server free for the next client.
struct Release<'a>(&'a Current);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.set(Occupant::Free);
    }
}

/// Whether the client has asked for a test, and how that went.
fn serve_client(
    stream: TcpStream,
    peer: String,
    factory: &dyn EndpointFactory,
    host: &Host,
    timeout: Duration,
    tell: &mut dyn FnMut(Event),
    current: &Current,
) -> (bool, Result<(), Failure>) {
    // Dropped in reverse: the connection closes after the server is free, so that a client that sees its end can come again at once.
    let _open = stream.try_clone();
    let _release = Release(current);
    tell(Event::Client(peer.clone()));
    tune(&stream, timeout);
    let connection = match Connection::greet(stream, Role::Server, timeout.min(HELLO_TIMEOUT)) {
        Ok((connection, _)) => connection.with_timeout(timeout),
        Err(failure) => return (false, Err(failure)),
    };
    current.set(Occupant::Client(peer));
    let mut has_asked = false;
    let result = serve_one(connection, factory, host, &mut |event| {
        has_asked |= matches!(event, Event::Asked(_));
        tell(event);
    });
    (has_asked, result)
}

/// Accepts until the listener is shut down: passes a client on if the server is free, and refuses it otherwise.
fn accept(listener: &TcpListener, current: &Current, clients: &Sender<(TcpStream, String)>) {
    let mut refused = Refused::default();
    loop {
        let (stream, address) = match listener.accept() {
            Ok(client) => client,
            // The listener was shut down.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => break,
            Err(error) => {
                // A client that has gone meanwhile is no reason to wait, a lack of descriptors is.
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
        *occupant = Occupant::Greeting;
        drop(occupant);
        if clients.send((stream, peer)).is_err() {
            break;
        }
    }
}

/// The connections to clients that were refused last.
#[derive(Default)]
struct Refused(VecDeque<TcpStream>);

impl Refused {
    /// Reports to a client that the server is busy, and closes the oldest connection if there are too many.
    fn refuse(&mut self, mut stream: TcpStream, why: String) {
        let hello = Hello { version: env!("CARGO_PKG_VERSION").to_owned(), busy: Some(why) };
        // The client may have gone already.
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

/// Closes the connection to a client that was refused, after reading the hello if it has arrived.
fn close(stream: &mut TcpStream) {
    let _ = stream.set_nonblocking(true).and_then(|()| stream.read(&mut [0; 4096]));
    // To drop it is not enough: a thread of a test may have a copy of the descriptor until it ends.
    let _ = stream.shutdown(Shutdown::Both);
}
