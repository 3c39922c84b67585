//! The side that sends files. One thread lists entries, several threads read and send, and one receives answers.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::fs::Stat;

use super::limiter::Limiter;
use super::list::list;
use super::options::CopyOptions;
use super::progress::Progress;
use super::{Outcome, read};
use crate::error::{Error, Kind, Result, escape};
use crate::link::{Link, Received, Receiver, Sender};
use crate::proto::{Entry, EntryKind, Failure, Frame, Have, Id, Job, Peer, Source, Totals};
use crate::thread::start;
use crate::tree::{Listing, Origin, Place};

/// Number of threads that read and send.
const READERS: usize = 2;
/// The copy fails after this many consecutive connections that complete no file and extend no long one.
const IDLE: u32 = 5;
/// Maximum number of files that are listed before they are sent.
const AHEAD: usize = 20_000;

/// State that the threads share.
pub(super) struct Shared<'s> {
    pub(super) sender: &'s Sender,
    pub(super) origin: &'s Origin,
    pub(super) options: &'s CopyOptions,
    pub(super) progress: &'s Progress,
    pub(super) limiter: Limiter,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    source: Source,
    /// Locations of files that were not sent yet.
    files: HashMap<Id, (Place, Entry)>,
    /// Files that are open because their first blocks were checked.
    open: HashMap<Id, (OwnedFd, Stat)>,
    all_listed: bool,
    /// Whether a list of files that already have numbers is being sent. The files themselves must be sent after it.
    is_listing: bool,
    /// Whether the listing thread waits because too many files are listed.
    is_full: bool,
    busy: usize,
    failures: Vec<Error>,
    /// The reason why the copy stopped.
    broken: Option<Error>,
    /// The progress that a broken connection does not undo: the bytes that the sink already had, and the complete
    /// files.
    kept: u64,
    /// The host of the chain that is lost.
    lost: Option<String>,
    report: Option<Totals>,
}

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
    let state = State {
        source: Source::new(options.asks()),
        files: HashMap::new(),
        open: HashMap::new(),
        all_listed: false,
        is_listing: false,
        is_full: false,
        busy: 0,
        failures: Vec::new(),
        broken: None,
        kept: 0,
        lost: None,
        report: None,
    };
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
            .try_for_each(|_| start(scope, || shared.work()).map(drop))
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

impl Shared<'_> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the state meets the condition, or until the copy fails.
    fn wait(&self, wanted: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while state.broken.is_none() && state.report.is_none() && !wanted(&state) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Wakes the threads that wait, unless none of them has anything to do.
    fn wake(&self, state: MutexGuard<'_, State>) {
        let is_over = state.broken.is_some() || state.report.is_some();
        let has_work = state.source.has_job() || state.is_full || (state.all_listed && state.source.waiting() == 0);
        drop(state);
        if is_over || has_work {
            self.changed.notify_all();
        }
    }

    /// The number of the next entry.
    pub(super) fn next_id(&self) -> Id {
        self.lock().source.next_id()
    }

    /// Whether no entry has a number yet.
    pub(super) fn has_listed_nothing(&self) -> bool {
        self.lock().source.totals().entries == 0
    }

    /// Assigns numbers to entries, and sends their list.
    pub(super) fn list(&self, dir: Id, listing: Listing) -> Result<Id> {
        let mut state = self.lock();
        if state.source.waiting() >= AHEAD {
            drop(state);
            // Otherwise the sink would not answer for their files.
            self.sender.send_waiting()?;
            self.lock().is_full = true;
            state = self.wait(|state| state.source.waiting() < AHEAD);
            state.is_full = false;
        }
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        let Listing { place, entries, whole, .. } = listing;
        let first = state.source.list(&entries);
        let list = Frame::List { dir, entries, whole };
        let bytes = list.emit();
        let Frame::List { entries, .. } = list else { return Ok(first) };
        // The files are recorded before the list is sent, because answers may arrive immediately.
        for (id, entry) in (first..).zip(entries) {
            // It is listed all the same, so that --delete keeps what the destination has of this name.
            if matches!(entry.kind, EntryKind::Special { .. }) && !self.options.keep.specials {
                let path = escape(&place.path(&entry.name));
                let text = format!("skipping non-regular file {path}; copy it with -D");
                state.failures.push(Error::new(Kind::Skipped, text));
            }
            if let EntryKind::File { size, .. } = entry.kind {
                self.progress.listed(size);
                state.files.insert(id, (place.clone(), entry));
            }
        }
        state.is_listing = true;
        drop(state);
        let sent = self.sender.later(&bytes);
        let mut state = self.lock();
        state.is_listing = false;
        self.wake(state);
        sent.map(|()| first)
    }

    /// Records a failed entry.
    pub(super) fn fail(&self, error: Error) {
        let mut state = self.lock();
        state.source.failed();
        state.failures.push(error);
    }

    fn break_if(&self, result: Result<()>) {
        if let Err(error) = result {
            // An earlier reason is kept, because the peer's own report, which is more precise, is recorded first.
            self.lock().broken.get_or_insert(error);
            self.changed.notify_all();
        }
    }

    /// Closes a file, which informs the sink that the file was sent completely or has failed.
    pub(super) fn close(&self, id: Id, result: std::result::Result<(), Error>) -> Result<()> {
        let told = result.as_ref().copied().map_err(Failure::from);
        if let Err(error) = result {
            self.fail(error);
        }
        self.sender.frame(&Frame::Close(id, told))
    }

    /// Whether the sink still needs hashes of this file.
    pub(super) fn is_checking(&self, id: Id) -> bool {
        self.lock().source.is_checking(id)
    }

    /// Records that the hashes of a file were sent.
    pub(super) fn checked(&self, id: Id) {
        self.lock().source.checked(id);
    }

    /// Keeps a file open until it is sent.
    pub(super) fn keep_open(&self, id: Id, file: (OwnedFd, Stat)) {
        self.lock().open.insert(id, file);
    }

    /// Returns a file that was kept open.
    pub(super) fn take_open(&self, id: Id) -> Option<(OwnedFd, Stat)> {
        self.lock().open.remove(&id)
    }

    /// Counts the bytes of sent blocks.
    pub(super) fn sent(&self, bytes: u64) {
        self.lock().source.sent(bytes);
        self.progress.bytes(bytes);
    }

    /// Runs jobs until none are left.
    fn work(&self) {
        loop {
            let mut state = self.lock();
            let (job, files) = loop {
                let over = state.all_listed && state.source.waiting() == 0;
                if over || state.broken.is_some() || state.report.is_some() {
                    return;
                }
                if !state.is_listing
                    && let Some(job) = state.source.next_job()
                {
                    let files: Vec<_> = match &job {
                        Job::Pack(files) => files.iter().filter_map(|(id, _)| state.files.remove(id)).collect(),
                        Job::File { id, .. } => state.files.remove(id).into_iter().collect(),
                        // The file itself is sent later.
                        Job::Check { id, .. } => state.files.get(id).cloned().into_iter().collect(),
                    };
                    break (job, files);
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            state.busy += 1;
            drop(state);
            let done = read::run(self, &job, &files);
            self.break_if(done);
            let mut state = self.lock();
            state.busy -= 1;
            self.wake(state);
        }
    }

    /// Receives the frames of the sink on this host, until its report or the end of the connection.
    fn take_answers(&self, receiver: &mut Receiver, host: &str) {
        loop {
            let received = receiver.receive();
            let mut state = self.lock();
            let taken = match received {
                Ok(Received::Frame(Frame::Have(answers))) => {
                    for (id, have) in &answers {
                        if *have == Have::All
                            && let Some((_, entry)) = state.files.remove(id)
                        {
                            if let EntryKind::File { size, .. } = entry.kind {
                                state.kept = state.kept.saturating_add(size + 1);
                                self.progress.bytes(size);
                            }
                            self.progress.skipped();
                        } else if let Have::Until(at) = have {
                            state.kept = state.kept.saturating_add(*at);
                            self.progress.bytes(*at);
                        }
                    }
                    state.source.have(&answers)
                }
                Ok(Received::Frame(Frame::Result(_, Err(failure)))) => {
                    state.failures.push(Error::from(failure).on(host));
                    Ok(())
                }
                Ok(Received::Frame(Frame::Removed { host: theirs, path })) => {
                    let host = if theirs.is_empty() { host } else { &theirs };
                    let at = if host.is_empty() { String::new() } else { format!("{}: ", escape(host.as_ref())) };
                    self.progress.line(|| format!("deleting {at}{}", escape(path.as_ref())));
                    Ok(())
                }
                Ok(Received::Frame(Frame::Lost(name, failure))) => {
                    state.lost = Some(name);
                    state.broken = Some(failure.into());
                    Ok(())
                }
                Ok(Received::Frame(Frame::Report(totals))) => {
                    state.report = Some(totals);
                    drop(state);
                    self.changed.notify_all();
                    return;
                }
                Ok(_) => Err(Error::protocol("the receiver sent an unexpected frame")),
                Err(error) => {
                    // The peer's report is more precise than the error that its disconnect causes.
                    if !matches!(&state.broken, Some(first) if first.kind() != Kind::Protocol && !first.is_disconnect())
                    {
                        state.broken = Some(error);
                    }
                    Ok(())
                }
            };
            if let Err(error) = taken {
                state.broken = Some(error);
            }
            let is_over = state.broken.is_some();
            self.wake(state);
            if is_over {
                return;
            }
        }
    }
}
