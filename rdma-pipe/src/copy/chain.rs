//! The next host of a chain. This host forwards everything that it receives to the next host, and merges the answers of
//! both hosts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Kind, Result};
use crate::link::{Link, Options, Patience, Received, Receiver, Sender, connect};
use crate::proto::{Failure, Frame, Have, Id, Peer, Purpose, Totals};

/// The host that has answered.
#[derive(Clone, Copy)]
pub(super) enum Side {
    This,
    Next,
}

/// The next host.
pub(super) struct Next {
    name: String,
    pub(super) sender: Sender,
    receiver: Mutex<Receiver>,
    /// The answers of [`Side::This`] and [`Side::Next`], for the files for which one of them is missing.
    answers: Mutex<HashMap<Id, [Option<Have>; 2]>>,
    /// Whether this host ends the connection. An error of the connection is then not a failure of the next host.
    is_ending: AtomicBool,
}

/// Connects to the next host of the chain, and passes it the list of the remaining hosts.
///
/// # Errors
///
/// The next host is lost. This function has already informed the source.
pub(super) fn open(
    upstream: &Sender,
    again: bool,
    mut chain: Vec<Peer>,
    patience: Patience,
    options: &Options,
) -> Result<Option<Next>> {
    if chain.is_empty() {
        return Ok(None);
    }
    let next = chain.remove(0);
    let linked = connect(&next, Purpose::Send, patience, options)
        .and_then(|link| link.sender.frame(&Frame::Begin { again, chain }).map(|()| link));
    match linked {
        Ok(Link { sender, receiver }) => Ok(Some(Next {
            name: next.name,
            sender,
            receiver: Mutex::new(receiver),
            answers: Mutex::default(),
            is_ending: AtomicBool::new(false),
        })),
        Err(error) => {
            upstream.frame(&Frame::Lost(next.name, Failure::from(&error)))?;
            upstream.flush();
            Err(Error::new(Kind::Broken, "the next host of the chain is lost"))
        }
    }
}

impl Next {
    /// Stores this host's first answers for these files.
    pub(super) fn keep(&self, answers: Vec<(Id, Have)>) {
        let answers = answers.into_iter().map(|(id, have)| (id, [Some(have), None]));
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).extend(answers);
    }

    /// Prepares for the second answers for a file, of which the source sends hashes. An earlier host may have less than
    /// this one and all later ones.
    pub(super) fn expect(&self, id: Id) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).entry(id).or_default();
    }

    /// Adds answers of one side. Returns those for which both sides have answered, or `None` if an answer belongs to no
    /// file. After [`Have::Check`], both sides answer again.
    pub(super) fn merge(&self, answers: Vec<(Id, Have)>, side: Side) -> Option<Vec<(Id, Have)>> {
        let mut kept = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut merged = Vec::new();
        for (id, have) in answers {
            let both = kept.get_mut(&id)?;
            if both[side as usize].replace(have).is_some() {
                return None;
            }
            let [Some(ours), Some(theirs)] = *both else { continue };
            let least = ours.min(theirs);
            merged.push((id, least));
            if let Have::Check(_) = least {
                *both = [None; 2];
            } else {
                kept.remove(&id);
            }
        }
        Some(merged)
    }

    /// The name of the host to which a frame belongs that the next host has sent.
    fn or_next(&self, host: String) -> String {
        if host.is_empty() { self.name.clone() } else { host }
    }

    /// Receives frames from the next host and forwards them to the source, until the next host sends its report or is
    /// lost.
    pub(super) fn take_answers(&self, upstream: &Sender) -> Result<Totals> {
        let mut receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = loop {
            let answers = match receiver.receive() {
                Ok(Received::Frame(Frame::Have(answers))) => answers,
                Ok(Received::Frame(Frame::Result(id, Err(failure)))) => {
                    let host = self.or_next(failure.host);
                    upstream.frame(&Frame::Result(id, Err(Failure { host, ..failure })))?;
                    continue;
                }
                Ok(Received::Frame(Frame::Removed { host, path })) => {
                    upstream.frame(&Frame::Removed { host: self.or_next(host), path })?;
                    continue;
                }
                Ok(Received::Frame(Frame::Report(totals))) => return Ok(totals),
                Ok(Received::Frame(Frame::Lost(name, failure))) => break (name, failure),
                Ok(_) => break (self.name.clone(), Failure::from(&Error::protocol("it sent an unexpected frame"))),
                Err(error) => break (self.name.clone(), Failure::from(&error)),
            };
            match self.merge(answers, Side::Next) {
                Some(merged) if merged.is_empty() => {}
                Some(merged) => upstream.frame(&Frame::Have(merged))?,
                None => {
                    break (self.name.clone(), Failure::from(&Error::protocol("it answered for an unknown file")));
                }
            }
        };
        if !self.is_ending.load(SeqCst) {
            upstream.frame(&Frame::Lost(lost.0, lost.1))?;
            upstream.flush();
        }
        Err(Error::new(Kind::Broken, "a host of the chain is lost"))
    }

    /// Ends the connection after a failure of this host or of an earlier host. The next host then waits for another
    /// connection.
    pub(super) fn end(&self) {
        self.is_ending.store(true, SeqCst);
        self.sender.shut_down();
    }
}
