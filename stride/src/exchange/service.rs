//! A server: one client after another.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::connection::{self, Connection};
use super::contact::tune;
use super::failure::Failure;
use super::message::{Hello, Message};
use super::server::{Event, Host, serve_one};
use crate::fabric::{Fabric, Role};

/// How long a client has to say who it is.
const GREETING: Duration = Duration::from_secs(5);

/// How many clients at a time are listened to until they say who they are, or told that the server is busy, each as long as it takes.
const MOST_AT_ONCE: usize = 16;

/// How long one more of them is listened to.
const HASTE: Duration = Duration::from_millis(50);

/// How long the server waits where the system has no descriptor for another client.
const PAUSE: Duration = Duration::from_millis(100);

/// Ends a server, from any thread.
#[derive(Debug)]
pub struct Stop(TcpListener);

impl Stop {
    /// For the server with this listener.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn new(listener: &TcpListener) -> io::Result<Self> {
        listener.try_clone().map(Self)
    }

    /// Nobody else is served: the server ends, after the client whom it serves.
    pub fn stop(&self) {
        // It may have been done already.
        let _ = SockRef::from(&self.0).shutdown(Shutdown::Both);
    }
}

/// Serves one client after another until it is stopped, or until one has had its test. Whom it serves is told those who come meanwhile.
///
/// # Errors
///
/// With `is_one_off` what failed in the test. Else what goes wrong is told as an [`Event`], and the next client is served.
pub fn serve(
    listener: &TcpListener,
    fabric: &dyn Fabric,
    host: &Host,
    timeout: Duration,
    is_one_off: bool,
    tell: &mut dyn FnMut(Event),
) -> Result<(), Failure> {
    let stop = Stop::new(listener).map_err(|error| Failure::Ours(error.into()))?;
    let served = Mutex::new(None);
    let (sender, clients) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| accept(listener, &served, timeout, sender));
        let _stop = StopAtEnd(&stop);
        for arrival in clients {
            let (stream, whom) = match arrival {
                Arrival::Speaks(stream, whom) => (stream, whom),
                Arrival::Silent(whom) => {
                    let text = format!("{whom} says nothing since it has connected: it may be no stride-perf");
                    tell(Event::Failed(text));
                    continue;
                }
            };
            let (has_asked, result) = serve_stream(stream, whom, fabric, host, timeout, tell, &served);
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

/// Whom the server serves, if anybody.
type Served = Mutex<Option<String>>;

fn lock(served: &Served) -> std::sync::MutexGuard<'_, Option<String>> {
    served.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stops the listener also where a panic ends the server: the thread that accepts would stay otherwise.
struct StopAtEnd<'a>(&'a Stop);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Whether the client has asked for a test, and how that went.
fn serve_stream(
    stream: TcpStream,
    whom: String,
    fabric: &dyn Fabric,
    host: &Host,
    timeout: Duration,
    tell: &mut dyn FnMut(Event),
    served: &Served,
) -> (bool, Result<(), Failure>) {
    // The client sees the end of the connection when the next one can be served, and not before: these go in the other order.
    let _kept = stream.try_clone();
    let _free = Free(served);
    tell(Event::Client(whom));
    tune(&stream, timeout);
    // What is silent before it has said who it is may be no client at all.
    let connection = match Connection::greet(stream, Role::Server, timeout.min(GREETING)) {
        Ok((connection, _)) => connection.with_timeout(timeout),
        Err(failure) => return (false, Err(failure)),
    };
    let mut has_asked = false;
    let result = serve_one(connection, fabric, host, &mut |event| {
        has_asked |= matches!(event, Event::Asked(_));
        tell(event);
    });
    (has_asked, result)
}

/// Makes the server free for the next client.
struct Free<'a>(&'a Served);

impl Drop for Free<'_> {
    fn drop(&mut self) {
        *lock(self.0) = None;
    }
}

/// Who has connected.
enum Arrival {
    /// A client that has begun to say who it is, and has the server now.
    Speaks(TcpStream, String),
    /// Somebody who has said nothing in the time for it.
    Silent(String),
}

/// Where clients come in.
struct Door<'a> {
    served: &'a Served,
    clients: Sender<Arrival>,
    is_closed: &'a AtomicBool,
}

impl Door<'_> {
    /// Has a client served, or tells it that somebody else is. Who says nothing does not have the server meanwhile: not all that connects is a
    /// client.
    fn take_in(&self, stream: TcpStream, whom: String, time: Duration) {
        if !self.speaks(&stream, time) {
            // Where nobody is told any more, the server has ended.
            let _ = self.clients.send(Arrival::Silent(whom));
            return;
        }
        let mut place = lock(self.served);
        if let Some(other) = &*place {
            let why = format!("the server is busy with a test for {other}: try later, or give --wait-server");
            drop(place);
            return refuse(stream, why, time);
        }
        *place = Some(whom.clone());
        drop(place);
        let _ = self.clients.send(Arrival::Speaks(stream, whom));
    }

    /// Whether something comes within this time, which may be the end.
    fn speaks(&self, stream: &TcpStream, time: Duration) -> bool {
        let begin = Instant::now();
        while !self.is_closed.load(Ordering::Relaxed) {
            let left = time.saturating_sub(begin.elapsed()).min(PAUSE);
            if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
                return false;
            }
            match stream.peek(&mut [0]) {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What is wrong with it is told where it is read.
                _ => return stream.set_read_timeout(None).is_ok(),
            }
        }
        false
    }
}

/// Takes clients in: one is served, others are told that somebody is.
fn accept(listener: &TcpListener, served: &Served, timeout: Duration, clients: Sender<Arrival>) {
    let (waiting, is_closed) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        loop {
            let (stream, address) = match listener.accept() {
                Ok(client) => client,
                Err(error) if is_stopped(&error) => break,
                Err(error) => {
                    // A client that has gone meanwhile is no reason to wait, a lack of descriptors is.
                    if error.kind() != io::ErrorKind::ConnectionAborted && error.kind() != io::ErrorKind::Interrupted {
                        std::thread::sleep(PAUSE);
                    }
                    continue;
                }
            };
            let whom = address.ip().to_canonical().to_string();
            let door = Door { served, clients: clients.clone(), is_closed: &is_closed };
            if waiting.load(Ordering::Relaxed) >= MOST_AT_ONCE {
                door.take_in(stream, whom, HASTE);
                continue;
            }
            waiting.fetch_add(1, Ordering::Relaxed);
            let waiting = &waiting;
            scope.spawn(move || {
                door.take_in(stream, whom, timeout.min(GREETING));
                waiting.fetch_sub(1, Ordering::Relaxed);
            });
        }
        is_closed.store(true, Ordering::Relaxed);
        drop(clients);
    });
}

/// Tells a client that the server is busy, and waits until it has gone with that.
fn refuse(mut stream: TcpStream, why: String, time: Duration) {
    let hello = Hello { version: env!("CARGO_PKG_VERSION").to_owned(), busy: Some(why) };
    if connection::write(&mut stream, &Message::Hello(hello), time).is_ok() {
        let _ = stream.shutdown(Shutdown::Write);
        connection::linger(&mut stream, time);
    }
}

/// Whether the listener was shut down.
fn is_stopped(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput
}
