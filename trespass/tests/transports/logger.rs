//! Loggers that use the crate themselves, or panic.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use log::{LevelFilter, Log, Metadata, Record};
use trespass::net::{Listener, Stream};
use trespass::{Acceptor, Connection, Handle, Transport};

use crate::common::worker;

/// A time limit that only a hung operation reaches.
const LONG: Duration = Duration::from_secs(60);

/// A part of a line, and what the logger does with the line.
type Act = (String, Box<dyn FnOnce() + Send>);

static ACTS: Mutex<Vec<Act>> = Mutex::new(Vec::new());

struct Logger;

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let line = record.args().to_string();
        let mut acts = ACTS.lock().unwrap_or_else(PoisonError::into_inner);
        let act = acts.iter().position(|(part, _)| line.contains(part)).map(|at| acts.swap_remove(at).1);
        drop(acts);
        if let Some(act) = act {
            act();
        }
    }

    fn flush(&self) {}
}

/// Makes the worker of an acceptor log a line, while no call of the program uses the worker. The logger then acts. Returns
/// after the peer of the line was answered.
fn log_line(acceptor: &Acceptor, act: impl FnOnce() + Send + 'static) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Logger).unwrap();
        log::set_max_level(LevelFilter::Debug);
    });
    let mut peer = TcpStream::connect(acceptor.local_addr()).unwrap();
    let part = format!("rejected a connection from {}", peer.local_addr().unwrap());
    ACTS.lock().unwrap().push((part, Box::new(act)));
    peer.set_read_timeout(Some(LONG)).unwrap();
    // A hello without fields.
    peer.write_all(&[1, 0]).unwrap();
    let mut answer = Vec::new();
    _ = peer.read_to_end(&mut answer);
    assert!(!answer.is_empty(), "the worker hangs, or its thread has ended");
}

fn pair(handle: &Handle) -> (Acceptor, Connection, Connection) {
    let acceptor = Acceptor::bind_on(handle, "127.0.0.1:0").unwrap();
    let client = Connection::connect_on(handle, acceptor.local_addr(), None).unwrap();
    let server = acceptor.accept().unwrap();
    (acceptor, client, server)
}

#[test]
fn logger_may_use_the_worker_that_logs() {
    let handle = worker(Transport::Tcp);
    let (acceptor, client, server) = pair(&handle);
    let listener = Listener::bind_on(&handle, "127.0.0.1:0").unwrap();
    let client = Arc::new(client);
    let (done, is_done) = channel();
    let (of_logger, others, address) = (handle.clone(), Arc::clone(&client), listener.local_addr().unwrap());
    log_line(&acceptor, move || {
        others.send(b"a line").unwrap();
        others.flush().unwrap();
        let mut stream = Stream::connect_on(&of_logger, address).unwrap();
        stream.write_all(b"another").unwrap();
        drop((of_logger, stream));
        done.send(()).unwrap();
    });
    is_done.recv_timeout(LONG).unwrap();
    assert_eq!(&server.recv().unwrap().unwrap()[..], b"a line");
    let mut text = String::new();
    listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
    assert_eq!(text, "another");
}

#[test]
fn logger_that_panics_stops_no_worker() {
    let handle = worker(Transport::Tcp);
    let (acceptor, client, server) = pair(&handle);
    for _ in 0..3 {
        log_line(&acceptor, || panic!("a logger fails"));
    }
    client.send(b"still here").unwrap();
    assert_eq!(&server.recv().unwrap().unwrap()[..], b"still here");
}

/// The logger holds a lock of its own while it sends.
#[test]
fn lock_of_the_logger_and_the_lock_of_the_worker_are_not_taken_in_two_orders() {
    let handle = worker(Transport::Tcp);
    let (acceptor, client, server) = pair(&handle);
    let lock = Arc::new(Mutex::new(client));
    for round in 0..20_u8 {
        let locked = lock.lock().unwrap();
        let of_logger = Arc::clone(&lock);
        let (begun, has_begun) = channel();
        log_line(&acceptor, move || {
            begun.send(()).unwrap();
            of_logger.lock().unwrap().send(&[round]).unwrap();
        });
        // The logger waits for this thread, which uses the worker.
        has_begun.recv_timeout(LONG).unwrap();
        locked.send(&[100 + round]).unwrap();
        drop(locked);
        for value in [100 + round, round] {
            assert_eq!(server.recv().unwrap().unwrap()[..], [value]);
        }
    }
}
