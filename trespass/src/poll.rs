//! Waits for one of several events.

use std::io;
use std::time::Instant;

use crate::connection::{Acceptor, Connection};
use crate::worker::{Awaited, Handle, Registration, Source, Worker};

/// An event for which [`poll`] waits.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Interest<'i> {
    /// A message, the end of the messages, or the connection's failure.
    Message(&'i Connection),
    /// A message can be sent, or the connection has failed.
    Room(&'i Connection),
    /// A connection to accept.
    Incoming(&'i Acceptor),
}

/// Waits until one of the interests is ready, or until the deadline. Returns for each interest whether it is ready. If
/// the deadline has passed, none is ready.
///
/// # Errors
///
/// `InvalidInput` if the interests belong to several workers, or if there are no interests.
pub fn poll(interests: &[Interest<'_>], deadline: Option<Instant>) -> io::Result<Vec<bool>> {
    let mut handles = interests.iter().map(Interest::handle);
    let Some(handle) = handles.next().filter(|first| handles.all(|other| other.is_same(first))) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "poll needs at least one interest, and all of them from one worker",
        ));
    };
    let mut calls: Vec<Registration> = Vec::with_capacity(interests.len());
    let found = handle.wait_aside(deadline, |worker, waker| {
        calls.drain(..).for_each(|call| drop(worker.remove_call(call)));
        let ready: Vec<bool> = interests.iter().map(|interest| interest.is_ready(worker)).collect();
        if ready.contains(&true) {
            return Ok(ready);
        }
        calls.extend(interests.iter().map(|interest| worker.register_call(interest.source(), waker.clone())));
        Err(io::ErrorKind::WouldBlock.into())
    });
    handle.with(|worker| calls.drain(..).for_each(|call| drop(worker.remove_call(call))))?;
    match found {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(vec![false; interests.len()]),
        found => found,
    }
}

impl Interest<'_> {
    fn handle(&self) -> &Handle {
        match self {
            Self::Message(connection) | Self::Room(connection) => connection.handle(),
            Self::Incoming(acceptor) => acceptor.handle(),
        }
    }

    fn source(&self) -> Source {
        match self {
            Self::Message(connection) => Source::Connection(connection.id(), Awaited::Message),
            Self::Room(connection) => Source::Connection(connection.id(), Awaited::Room),
            Self::Incoming(acceptor) => Source::Acceptor(acceptor.id()),
        }
    }

    fn is_ready(&self, worker: &mut Worker) -> bool {
        match self {
            Self::Message(connection) => worker.can_receive(connection.id()),
            Self::Room(connection) => worker.can_send(connection.id()),
            Self::Incoming(acceptor) => worker.has_accepted(acceptor.id()),
        }
    }
}
