//! A server: one client after another.

use std::io;
use std::net::TcpListener;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use super::cm;
use super::connection::{self, Connection};
use super::failure::Failure;
use super::listeners::{Caller, Listeners, Stop};
use super::message::{Hello, Message};
use super::server::{Event, Host, serve_one};
use crate::endpoint::{EndpointFactory, Role};

/// How long a client has to say who it is.
const GREETING: Duration = Duration::from_secs(5);

/// How many clients at a time, of TCP and of rdma_cm each, are listened to until they say who they are, or told that the server is busy, each as
/// long as it takes.
const MOST_AT_ONCE: usize = 16;

/// How many of rdma_cm are listened to besides, each for as short a time once it is connected.
const MOST_IN_HASTE: usize = 16;

/// How many of those who are no clients wait to be told of, while a test runs. Of others it is told how many there were.
const MOST_STRANGERS: usize = 64;

/// How long one more of them is listened to.
const HASTE: Duration = Duration::from_millis(50);

/// How long the server waits where the system has no descriptor for another client.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves one client after another until it is stopped, or until one has had its test. Whom it serves is told those who come meanwhile.
///
/// # Errors
///
/// With `is_one_off` what failed in the test. Else what goes wrong is told as an [`Event`], and the next client is served.
pub fn serve(
    reception: &Listeners,
    factory: &dyn EndpointFactory,
    host: &Host,
    timeout: Duration,
    is_one_off: bool,
    tell: &mut dyn FnMut(Event),
) -> Result<(), Failure> {
    let stop = Stop::new(reception).map_err(|error| Failure::Ours(error.into()))?;
    let served = Mutex::new(None);
    let strangers = Mutex::new(Strangers::default());
    let (sender, clients) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| let_in(reception, (&served, &strangers), timeout, sender));
        let _stop = StopAtEnd(&stop);
        for arrival in clients {
            let (caller, whom) = match arrival {
                Arrival::Speaks(caller, whom) => (caller, whom),
                Arrival::Strange(text) => {
                    tell(Event::Failed(text));
                    if let Some(others) = lock(&strangers).told() {
                        tell(Event::Failed(others));
                    }
                    continue;
                }
            };
            let (has_asked, result) = serve_caller(caller, whom, factory, host, timeout, tell, &served);
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

/// Those who were turned away and are not told of yet.
#[derive(Debug, Default)]
struct Strangers {
    waiting: usize,
    left_out: u64,
}

impl Strangers {
    /// Whether there is room to tell of one more.
    fn add(&mut self) -> bool {
        let has_room = self.waiting < MOST_STRANGERS;
        self.waiting += usize::from(has_room);
        self.left_out += u64::from(!has_room);
        has_room
    }

    /// One was told of. What there is to say of those for whom there was no room.
    fn told(&mut self) -> Option<String> {
        self.waiting = self.waiting.saturating_sub(1);
        if self.waiting > 0 || self.left_out == 0 {
            return None;
        }
        Some(format!("{} more were turned away meanwhile", std::mem::take(&mut self.left_out)))
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stops the listener also where a panic ends the server: the thread that accepts would stay otherwise.
struct StopAtEnd<'a>(&'a Stop);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Whether the client has asked for a test, and how that went.
fn serve_caller(
    caller: Caller,
    whom: String,
    factory: &dyn EndpointFactory,
    host: &Host,
    timeout: Duration,
    tell: &mut dyn FnMut(Event),
    served: &Served,
) -> (bool, Result<(), Failure>) {
    // The client sees the end of the connection when the next one can be served, and not before: these go in the other order.
    let _kept = caller.kept();
    let _free = Free(served);
    tell(Event::Client(whom));
    caller.tune(timeout);
    // What is silent before it has said who it is may be no client at all.
    let connection = match Connection::greet(caller, Role::Server, timeout.min(GREETING)) {
        Ok((connection, _)) => connection.with_timeout(timeout),
        Err(failure) => return (false, Err(failure)),
    };
    let mut has_asked = false;
    let result = serve_one(connection, factory, host, &mut |event| {
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
    Speaks(Caller, String),
    /// Somebody who is no client, in a sentence.
    Strange(String),
}

/// Where clients come in.
#[derive(Clone)]
struct Door<'a> {
    served: &'a Served,
    strangers: &'a Mutex<Strangers>,
    clients: Sender<Arrival>,
    is_closed: &'a AtomicBool,
}

impl Door<'_> {
    /// Has a client served, or tells it that somebody else is. Who says nothing does not have the server meanwhile: not all that connects is a
    /// client.
    fn take_in(&self, mut caller: Caller, whom: String, time: Duration) {
        if !self.speaks(&mut caller, time) {
            caller.end();
            return self.turn_away(format!("{whom} says nothing since it has connected: it may be no stride-perf"));
        }
        let mut place = lock(self.served);
        if let Some(other) = &*place {
            let why = busy(other);
            drop(place);
            return refuse(caller, why, time);
        }
        *place = Some(whom.clone());
        drop(place);
        let _ = self.clients.send(Arrival::Speaks(caller, whom));
    }

    /// Has it told why somebody is not served, where not too many are told of already.
    fn turn_away(&self, why: String) {
        if !lock(self.strangers).add() {
            return;
        }
        // Where nobody is told any more, the server has ended.
        let _ = self.clients.send(Arrival::Strange(why));
    }

    /// Whether something comes within this time, which may be the end.
    fn speaks(&self, caller: &mut Caller, time: Duration) -> bool {
        let begin = Instant::now();
        while !self.is_closed.load(Ordering::Relaxed) {
            let left = time.saturating_sub(begin.elapsed()).min(PAUSE);
            if left.is_zero() {
                return false;
            }
            if caller.speaks(left) {
                return true;
            }
        }
        false
    }
}

/// Lets clients in: one is served, others are told that somebody is.
fn let_in(
    reception: &Listeners,
    (served, strangers): (&Served, &Mutex<Strangers>),
    timeout: Duration,
    clients: Sender<Arrival>,
) {
    // Those of one kind who say nothing take no place from those of the other.
    let (by_tcp, by_rdma_cm, is_closed) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let door = || Door { served, strangers, clients: clients.clone(), is_closed: &is_closed };
    std::thread::scope(|scope| {
        if let Some(cm) = reception.cm() {
            let (door, waiting) = (door(), &by_rdma_cm);
            scope.spawn(move || accept_by_rdma_cm(scope, cm, reception.tcp(), &door, (waiting, timeout)));
        }
        accept(scope, reception.tcp(), &door(), (&by_tcp, timeout.min(GREETING)));
        is_closed.store(true, Ordering::Relaxed);
    });
}

/// Those who come over TCP, until the listener is shut down.
fn accept<'s>(
    scope: &'s Scope<'s, '_>,
    listener: &TcpListener,
    door: &Door<'s>,
    (waiting, time): (&'s AtomicUsize, Duration),
) {
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
        let (caller, whom) = (Caller::Tcp(stream), address.ip().to_canonical().to_string());
        match Place::of(waiting) {
            None => door.take_in(caller, whom, HASTE),
            Some(place) => {
                let door = door.clone();
                scope.spawn(move || {
                    let _place = place;
                    door.take_in(caller, whom, time);
                });
            }
        }
    }
}

/// Those who come over rdma_cm, until the listener of TCP is shut down.
fn accept_by_rdma_cm<'s>(
    scope: &'s Scope<'s, '_>,
    cm: &cm::Listener,
    stop: &TcpListener,
    door: &Door<'s>,
    (waiting, timeout): (&'s AtomicUsize, Duration),
) {
    while let Some(caller) = cm.next(stop) {
        let client = match caller.look() {
            Ok(client) => client,
            Err(why) => {
                door.turn_away(why);
                continue;
            }
        };
        let (place, to_speak) = match Place::of(waiting) {
            Some(place) => (place, timeout.min(GREETING)),
            None => {
                // Who is told that the server is busy needs no connection for that.
                let other = lock(door.served).clone();
                match Place::among(waiting, MOST_AT_ONCE + MOST_IN_HASTE).filter(|_| other.is_none()) {
                    Some(place) => (place, HASTE),
                    None => {
                        client.refuse(crowded(other.as_deref()));
                        continue;
                    }
                }
            }
        };
        let door = door.clone();
        scope.spawn(move || {
            let _place = place;
            let whom = client.whom().to_owned();
            match client.answer(timeout.min(cm::PATIENCE), || door.is_closed.load(Ordering::Relaxed)) {
                Ok(stream) => door.take_in(Caller::Cm(Box::new(stream)), whom, to_speak),
                Err(Some(why)) => door.turn_away(why),
                // The server ends.
                Err(None) => {}
            }
        });
    }
}

/// One of the places of those who are listened to until they say who they are.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    /// None where all are taken.
    fn of(waiting: &'a AtomicUsize) -> Option<Self> {
        Self::among(waiting, MOST_AT_ONCE)
    }

    /// One of so many.
    fn among(waiting: &'a AtomicUsize, most: usize) -> Option<Self> {
        let taken = waiting.fetch_add(1, Ordering::Relaxed);
        let place = Self(waiting);
        (taken < most).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why one more is not even listened to, while somebody has the server or nobody.
fn crowded(other: Option<&str>) -> String {
    other.map_or_else(|| "the server listens to too many at once".to_owned(), busy)
}

fn busy(other: &str) -> String {
    format!("the server is busy with a test for {other}")
}

/// Tells a client that the server is busy, and waits until it has gone with that.
fn refuse(mut caller: Caller, why: String, time: Duration) {
    let hello = Hello { version: env!("CARGO_PKG_VERSION").to_owned(), busy: Some(why) };
    if connection::write(&mut caller, &Message::Hello(hello), time).is_ok() {
        caller.said_all();
        connection::linger(&mut caller, time);
    }
    caller.end();
}

/// Whether the listener was shut down.
fn is_stopped(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_flood_of_strangers_few_are_kept_and_the_others_counted() {
        let mut strangers = Strangers::default();
        let kept = (0..1000).filter(|_| strangers.add()).count();
        assert_eq!(kept, MOST_STRANGERS);
        let told: Vec<_> = (0..kept).filter_map(|_| strangers.told()).collect();
        assert_eq!(told, [format!("{} more were turned away meanwhile", 1000 - MOST_STRANGERS)]);
        assert!(strangers.add() && strangers.told().is_none(), "they are told of once");
    }

    #[test]
    fn a_server_that_serves_nobody_does_not_say_that_it_does() {
        assert_eq!(crowded(None), "the server listens to too many at once");
        assert_eq!(crowded(Some("192.0.2.7")), "the server is busy with a test for 192.0.2.7");
    }

    #[test]
    fn places_are_free_again() {
        let waiting = AtomicUsize::new(0);
        let places: Vec<_> = std::iter::from_fn(|| Place::of(&waiting)).collect();
        assert_eq!(places.len(), MOST_AT_ONCE);
        assert!(Place::among(&waiting, MOST_AT_ONCE + 1).is_some() && Place::of(&waiting).is_none());
        drop(places);
        assert_eq!(waiting.load(Ordering::Relaxed), 0);
    }
}
