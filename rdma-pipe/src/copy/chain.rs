//! The next host of a chain: it gets everything that this one receives, and its answers are merged with this one's.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, Kind, Result};
use crate::link::{Link, Options, Patience, Received, Receiver, Sender, connect};
use crate::proto::{Failure, Frame, Have, Id, Peer, Purpose, Totals};

/// Time to connect to the next host, which listens already.
const CONNECT: Duration = Duration::from_secs(10);

/// The next host.
pub(super) struct Next {
    name: String,
    pub(super) sender: Sender,
    receiver: Mutex<Receiver>,
    /// This host's answers that wait for those of the next one.
    own: Mutex<HashMap<Id, Have>>,
    /// This host ends the connection: what breaks now is not the next host's fault.
    is_ending: AtomicBool,
}

/// Connects to the first of the rest of the chain, and passes the remainder on to it.
///
/// # Errors
///
/// The host is lost, which the source has been informed of.
pub(super) fn open(upstream: &Sender, again: bool, mut chain: Vec<Peer>, options: &Options) -> Result<Option<Next>> {
    if chain.is_empty() {
        return Ok(None);
    }
    let Peer { name, addresses, key } = chain.remove(0);
    let linked = connect(&addresses, &key, Purpose::Send, Patience::Listening(CONNECT), options)
        .and_then(|link| link.sender.frame(&Frame::Begin { again, chain }).map(|()| link));
    match linked {
        Ok(Link { sender, receiver }) => Ok(Some(Next {
            name,
            sender,
            receiver: Mutex::new(receiver),
            own: Mutex::default(),
            is_ending: AtomicBool::new(false),
        })),
        Err(error) => {
            upstream.frame(&Frame::Lost(name, Failure::from(&error)))?;
            upstream.flush();
            Err(Error::new(Kind::Broken, "the next host of the chain is lost"))
        }
    }
}

impl Next {
    /// Keeps answers of this host until the next one has answered.
    pub(super) fn keep(&self, answers: Vec<(Id, Have)>) {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).extend(answers);
    }

    /// Receives what the next host sends, until its report or its loss; passes it on to the source. The merged answers go to this host's
    /// receiving thread too, before the source has them.
    pub(super) fn take_answers(&self, upstream: &Sender, merged: &mpsc::Sender<Vec<(Id, Have)>>) -> Result<Totals> {
        let mut receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = loop {
            let answers = match receiver.receive() {
                Ok(Received::Frame(Frame::Have(answers))) => answers,
                Ok(Received::Frame(Frame::Result(id, Err(failure)))) => {
                    let text = format!("{}: {}", self.name, failure.text);
                    upstream.frame(&Frame::Result(id, Err(Failure { text, ..failure })))?;
                    continue;
                }
                Ok(Received::Frame(Frame::Report(totals))) => return Ok(totals),
                Ok(Received::Frame(Frame::Lost(name, failure))) => break (name, failure),
                Ok(_) => break (self.name.clone(), Failure::from(&Error::protocol("it sent an unexpected frame"))),
                Err(error) => break (self.name.clone(), Failure::from(&error)),
            };
            let both = {
                let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
                let both = answers.into_iter().map(|(id, theirs)| Some((id, own.remove(&id)?.min(theirs))));
                both.collect::<Option<Vec<_>>>()
            };
            let Some(both) = both else {
                break (self.name.clone(), Failure::from(&Error::protocol("it answered for an unknown file")));
            };
            // A receiving thread that has ended needs no answers.
            _ = merged.send(both.clone());
            upstream.frame(&Frame::Have(both))?;
        };
        if !self.is_ending.load(SeqCst) {
            upstream.frame(&Frame::Lost(lost.0, lost.1))?;
            upstream.flush();
        }
        Err(Error::new(Kind::Broken, "a host of the chain is lost"))
    }

    /// Ends the connection after a failure of this host or before it: the next host then waits for another connection.
    pub(super) fn end(&self) {
        self.is_ending.store(true, SeqCst);
        self.sender.shut_down();
    }
}
