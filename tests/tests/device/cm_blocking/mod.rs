//! Connections by blocking calls: their data, their end, and the error of each failure.
#![expect(clippy::unwrap_used, reason = "a test")]

mod addresses;
mod data;
mod datagrams;
mod endings;
mod failures;
mod listeners;
mod migrate;

use std::thread;

use sideway::rdmacm::{Connection, ConnectionParameter, Connector, Listener};
use sideway_tests::connections::{End, LONG, address};

/// A side of a connection.
struct Side {
    end: End,
    connection: Connection,
}

/// A listener at the address of the test device, on a free port.
#[track_caller]
fn listener() -> Listener {
    Listener::bind((address(), 0)).unwrap_or_else(|error| panic!("{error}"))
}

/// A deadline longer than anything takes.
fn connector() -> Connector {
    let mut connector = Connector::new();
    connector.setup_timeout(LONG);
    connector
}

/// Connects to a listener.
#[track_caller]
fn connect(listener: &Listener, parameter: &ConnectionParameter) -> Side {
    let resolved = connector().resolve(listener.local_address()).unwrap_or_else(|error| panic!("{error}"));
    let end = End::of(resolved.identifier().clone());
    Side { end, connection: resolved.connect(parameter).unwrap_or_else(|error| panic!("{error}")) }
}

/// Accepts the next request.
#[track_caller]
fn accept(listener: &Listener) -> Side {
    let request = listener.accept(Some(LONG)).unwrap_or_else(|error| panic!("{error}"));
    let end = End::of(request.identifier().clone());
    Side { end, connection: request.accept(&ConnectionParameter::default()).unwrap_or_else(|error| panic!("{error}")) }
}

/// Two sides: client and server.
#[track_caller]
fn pair(listener: &Listener) -> (Side, Side) {
    thread::scope(|scope| {
        let active = scope.spawn(|| connect(listener, &ConnectionParameter::default()));
        let passive = accept(listener);
        (active.join().unwrap(), passive)
    })
}
