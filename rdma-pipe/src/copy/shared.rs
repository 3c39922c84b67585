//! What the threads of the side that sends files share: the entries that are listed, and the state of the copy.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::Stat;

use super::limiter::Limiter;
use super::options::CopyOptions;
use super::progress::Progress;
use crate::error::{Error, Kind, Result, escape};
use crate::link::{Received, Receiver, Sender};
use crate::proto::{Entry, EntryKind, Failure, Frame, Have, Id, Job, Source, Totals};
use crate::tree::{Listing, Origin, Place};

/// Maximum number of files that are listed before they are sent.
const AHEAD: usize = 20_000;

/// State that the threads share.
pub(super) struct Shared<'s> {
    pub(super) sender: &'s Sender,
    pub(super) origin: &'s Origin,
    pub(super) options: &'s CopyOptions,
    pub(super) progress: &'s Progress,
    pub(super) limiter: Limiter,
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
}

pub(super) struct State {
    pub(super) source: Source,
    /// Locations of files that were not sent yet.
    files: HashMap<Id, (Place, Entry)>,
    /// Files that are open because their first blocks were checked.
    open: HashMap<Id, (OwnedFd, Stat)>,
    pub(super) all_listed: bool,
    /// Whether a list of files that already have numbers is being sent. The files themselves must be sent after it.
    is_listing: bool,
    /// Whether the listing thread waits because too many files are listed.
    is_full: bool,
    pub(super) busy: usize,
    pub(super) failures: Vec<Error>,
    /// The reason why the copy stopped.
    pub(super) broken: Option<Error>,
    /// The progress that a broken connection does not undo: the bytes that the sink already had, and the complete
    /// files.
    pub(super) kept: u64,
    /// The host of the chain that is lost.
    pub(super) lost: Option<String>,
    pub(super) report: Option<Totals>,
}

impl State {
    pub(super) fn new(asks: bool) -> Self {
        Self {
            source: Source::new(asks),
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
        }
    }
}

impl Shared<'_> {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the state meets the condition, or until the copy fails.
    pub(super) fn wait(&self, wanted: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
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

    pub(super) fn break_if(&self, result: Result<()>) {
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

    /// Waits for a job. Returns it with its files, or `None` if none is left.
    pub(super) fn next_job(&self) -> Option<(Job, Vec<(Place, Entry)>)> {
        let mut state = self.lock();
        loop {
            let over = state.all_listed && state.source.waiting() == 0;
            if over || state.broken.is_some() || state.report.is_some() {
                return None;
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
                state.busy += 1;
                return Some((job, files));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Records that a job is done, or why the copy cannot continue.
    pub(super) fn job_done(&self, result: Result<()>) {
        self.break_if(result);
        let mut state = self.lock();
        state.busy -= 1;
        self.wake(state);
    }

    /// Receives the frames of the sink on this host, until its report or the end of the connection.
    pub(super) fn take_answers(&self, receiver: &mut Receiver, host: &str) {
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
