//! The side that sends files. One thread lists entries, several threads read and send, and one receives answers.

use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use super::limiter::Limiter;
use super::list::list;
use super::options::CopyOptions;
use super::progress::Progress;
use super::shared::{Shared, State};
use super::{Outcome, read};
use crate::error::{Error, Result};
use crate::link::Link;
use crate::proto::{Frame, Peer};
use crate::thread::start;
use crate::tree::Origin;

/// Number of threads that read and send.
const READERS: usize = 2;
/// The copy fails after this many consecutive connections that complete no file and extend no long one.
const IDLE: u32 = 5;
/// Sends files and directories to the hosts of a chain. If the chain is empty, `connect` selects the only host. The
/// outcome lists failed entries and failed hosts. If the connection breaks or a host is lost, the copy continues over
/// another connection.
///
/// # Errors
///
/// The copy as a whole failed: a listed path leads out of the source, no connection can be established any more, or the
/// last host reported a failure.
pub fn send(
    mut connect: impl FnMut(Option<&Peer>) -> Result<Link>,
    mut chain: Vec<Peer>,
    origin: &Origin,
    paths: &[PathBuf],
    options: &CopyOptions,
    progress: &Progress,
) -> Result<Outcome> {
    options.check()?;
    let is_chain = chain.len() > 1;
    let mut options = options.clone();
    let (mut carried, mut lost) = (0, Vec::new());
    let mut broken: Option<Error> = None;
    let (mut idle, mut most) = (0, 0);
    loop {
        let (name, error, is_final) = match connect(chain.first()) {
            Ok(link) => {
                let begin = Frame::Begin { again: options.again, chain: chain.iter().skip(1).cloned().collect() };
                // The sink names the hosts after itself, but not its own.
                let host = chain.first().map_or("", |peer| &peer.name);
                let (sent, kept, result) = session(link, host, &begin, origin, paths, &options, progress);
                carried += sent;
                // Sent blocks alone are not progress, because a short file is sent again.
                idle = if kept > most { 0 } else { idle + 1 };
                most = most.max(kept);
                match result {
                    Ok(outcome) => {
                        let failures = outcome.failures.into_iter().chain(lost).collect();
                        return Ok(Outcome { carried, failures, ..outcome });
                    }
                    Err(Stopped { host, error }) => {
                        let is_final = !error.is_disconnect() || idle == IDLE;
                        (host, error, is_final)
                    }
                }
            }
            // If a connection broke earlier, its error is more useful than that of the failed reconnect.
            Err(error) => (None, broken.take().unwrap_or(error), true),
        };
        let at = match &name {
            Some(name) => chain.iter().position(|peer| peer.name == *name).unwrap_or_default(),
            None => 0,
        };
        let is_alone = chain.len() < 2;
        if is_final {
            if !is_chain {
                return Err(error);
            }
            let error = error.on(&chain.remove(at).name);
            if is_alone {
                return Err(error);
            }
            log::warn!("{error}; the copy continues without it");
            lost.push(error);
            idle = 0;
        } else {
            // A connection between two hosts may break although both are running.
            log::info!("{error}; connecting again");
            broken = Some(error);
        }
        options.again = true;
        progress.restart();
    }
}

/// The reason why a session ended early, and the host that failed. `None` stands for the host to which this side is
/// connected.
struct Stopped {
    host: Option<String>,
    error: Error,
}

/// Sends over one connection. Also returns the number of block bytes, and the number of bytes that the sink had
/// already.
fn session(
    link: Link,
    host: &str,
    begin: &Frame,
    origin: &Origin,
    paths: &[PathBuf],
    options: &CopyOptions,
    progress: &Progress,
) -> (u64, u64, std::result::Result<Outcome, Stopped>) {
    let Link { sender, mut receiver } = link;
    let state = State::new(options.asks());
    let shared = Shared {
        sender: &sender,
        origin,
        options,
        progress,
        limiter: Limiter::new(options.limit),
        state: Mutex::new(state),
        changed: Condvar::new(),
    };
    thread::scope(|scope| {
        let started = (0..READERS)
            .try_for_each(|_| start(scope, || work(&shared)).map(drop))
            .and_then(|()| start(scope, || shared.take_answers(&mut receiver, host)).map(drop));
        shared.break_if(
            started
                .and_then(|()| sender.frame(begin))
                .and_then(|()| list(&shared, paths))
                .and_then(|()| sender.send_waiting()),
        );
        progress.all_listed();
        let mut state = shared.lock();
        state.all_listed = true;
        state.source.listed();
        drop(state);
        shared.changed.notify_all();
        let state = shared.wait(|state| state.source.waiting() == 0 && state.busy == 0);
        let (is_broken, is_lost, totals) = (state.broken.clone(), state.lost.is_some(), state.source.totals());
        drop(state);
        match is_broken {
            // Aborts only if the copy cannot continue; after a broken connection or a lost host, the copy continues
            // over another connection. The receiving thread ends when the peer ends the connection.
            Some(error) if !error.is_disconnect() && !is_lost => sender.abort(&error),
            Some(_) => sender.shut_down(),
            None => shared.break_if(sender.frame(&Frame::End(totals))),
        }
    });
    let state = shared.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    let sent = state.source.totals();
    let result = match (state.broken, state.report) {
        (_, Some(done)) if done.bytes != sent.bytes || done.files != sent.files => {
            Err(Error::protocol("the receiver counted other numbers of files or bytes than were sent; start again"))
        }
        (_, Some(done)) => Ok(Outcome { totals: done, carried: sent.bytes, failures: state.failures }),
        (Some(error), None) => Err(error),
        (None, None) => Err(Error::protocol("the receiver sent no report")),
    };
    (sent.bytes, state.kept, result.map_err(|error| Stopped { host: state.lost, error }))
}

/// Runs jobs until none are left.
fn work(shared: &Shared<'_>) {
    while let Some((job, files)) = shared.next_job() {
        shared.job_done(read::run(shared, &job, &files));
    }
}
