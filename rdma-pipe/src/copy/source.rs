//! The side that sends files. One thread lists entries, several threads read and send, and one receives answers.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::limiter::Limiter;
use super::options::CopyOptions;
use super::progress::Progress;
use super::{Outcome, read};
use crate::error::{Error, Kind, Result, escape};
use crate::link::{Link, Received, Receiver, Sender};
use crate::proto::{Entry, EntryKind, Failure, Frame, Have, Id, Job, Peer, ROOT, Source, Totals};
use crate::tree::{Listing, Origin, Place, Walk, base_name, is_contents};

/// Number of threads that read and send.
const READERS: usize = 2;
/// The copy fails after this many consecutive connections that complete no file and extend no journal.
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
    all_listed: bool,
    /// Whether a list of files that already have numbers is being sent. The files themselves must be sent after it.
    is_listing: bool,
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
    (origin, paths): (&Origin, &[PathBuf]),
    options: &CopyOptions,
    progress: &Progress,
) -> Result<Outcome> {
    options.check()?;
    let is_chain = chain.len() > 1;
    let mut options = options.clone();
    let (mut carried, mut lost) = (0, Vec::new());
    // Hosts that were reported as lost once. Only a second report counts, because a connection between two hosts may
    // break although both are running.
    let mut suspects: Vec<String> = Vec::new();
    let mut broken: Option<Error> = None;
    let (mut idle, mut most) = (0, 0);
    loop {
        let (name, error, is_final) = match connect(chain.first()) {
            Ok(link) => {
                let begin =
                    Frame::Begin { again: options.begun.is_some(), chain: chain.iter().skip(1).cloned().collect() };
                let (sent, kept, result) = session(link, &begin, (origin, paths), &options, progress);
                carried += sent;
                // Sent blocks alone are not progress, because a file without a journal is sent again.
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
        if is_final || (!is_alone && suspects.contains(&chain[at].name)) {
            if !is_chain {
                return Err(error);
            }
            let error = error.within(chain.remove(at).name);
            if is_alone {
                return Err(error);
            }
            log::warn!("{error}; the copy continues without it");
            lost.push(error);
        } else {
            log::info!("{error}; connecting again");
            suspects.extend(chain.get(at).map(|peer| peer.name.clone()));
            broken = Some(error);
        }
        options.begun = Some((0, 0));
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
    begin: &Frame,
    (origin, paths): (&Origin, &[PathBuf]),
    options: &CopyOptions,
    progress: &Progress,
) -> (u64, u64, std::result::Result<Outcome, Stopped>) {
    let Link { sender, mut receiver } = link;
    let state = State {
        source: Source::new(options.asks()),
        files: HashMap::new(),
        all_listed: false,
        is_listing: false,
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
        scope.spawn(|| shared.take_answers(&mut receiver));
        for _ in 0..READERS {
            scope.spawn(|| shared.work());
        }
        shared.break_if(sender.frame(begin).and_then(|()| list(&shared, paths)));
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

/// Lists the operands, then the entries below them.
fn list(shared: &Shared<'_>, paths: &[PathBuf]) -> Result<()> {
    let options = shared.options;
    let mut walk = Walk::new(shared.origin, options.filter.clone(), options.keep, options.recursive, options.checksum);
    if let Some(selected) = &options.files_from {
        return list_selected(shared, &mut walk, paths, selected);
    }
    let mut folders = Vec::new();
    let mut has_top = false;
    for path in paths {
        let Some(name) = base_name(path).filter(|_| !is_contents(path.as_os_str().as_bytes(), options.sync)) else {
            if options.recursive {
                // The destination gets the metadata of the first such directory; those of the others have no place.
                if !std::mem::replace(&mut has_top, true) && shared.lock().source.totals().entries == 0 {
                    send_top(shared, &mut walk, path)?;
                }
                walk_folder(shared, &mut walk, path, b"", ROOT, &mut folders)?;
            } else {
                shared.fail(Error::new(Kind::File, format!("{} is a directory; copy it with -r", escape(path))));
            }
            continue;
        };
        let id = shared.lock().source.next_id();
        match walk.entry(path, name.clone(), (id, Some(&name)), options.follows()) {
            Ok(None) => {}
            Ok(Some(entry)) => {
                let is_directory = entry.kind == EntryKind::Directory;
                let parent = path.parent().unwrap_or(Path::new(""));
                let place =
                    Place { directory: parent.to_owned().into(), below: Vec::new().into(), follows: options.follows() };
                let id = shared.list(ROOT, Listing { place, entries: vec![entry], whole: false })?;
                if is_directory {
                    folders.push((path.clone(), name, id));
                }
            }
            Err(error) => shared.fail(error),
        }
    }
    // Takes the last directory first, because directories that were listed together are close to each other on the
    // disk.
    while let Some((path, below, id)) = folders.pop() {
        walk_folder(shared, &mut walk, &path, &below, id, &mut folders)?;
    }
    Ok(())
}

/// Sends the metadata of a directory whose entries are copied. If it cannot be read, the list of its entries reports why.
fn send_top(shared: &Shared<'_>, walk: &mut Walk<'_>, path: &Path) -> Result<()> {
    match walk.entry(path, b".".to_vec(), (ROOT, None), true) {
        Ok(Some(entry)) if entry.kind == EntryKind::Directory => shared.sender.frame(&Frame::Top(entry)),
        _ => Ok(()),
    }
}

type Folders = Vec<(PathBuf, Vec<u8>, Id)>;

fn walk_folder(
    shared: &Shared<'_>,
    walk: &mut Walk<'_>,
    path: &Path,
    below: &[u8],
    id: Id,
    folders: &mut Folders,
) -> Result<()> {
    let next = shared.lock().source.next_id();
    let take = |listing: Listing| {
        let found: Vec<_> = (0..)
            .zip(&listing.entries)
            .filter(|(_, entry)| entry.kind == EntryKind::Directory)
            .map(|(index, entry)| {
                let below = if below.is_empty() { entry.name.clone() } else { [below, b"/", &entry.name].concat() };
                (listing.place.path(&entry.name), below, index)
            })
            .collect();
        let first = shared.list(id, listing)?;
        folders.extend(found.into_iter().rev().map(|(path, below, index)| (path, below, first + index)));
        Ok(first)
    };
    walk.list(path, below, next, take, |error| shared.fail(error))
}

/// Lists the paths of `--files-from`, together with the directories that contain them.
fn list_selected(shared: &Shared<'_>, walk: &mut Walk<'_>, paths: &[PathBuf], selected: &[Vec<u8>]) -> Result<()> {
    let [base] = paths else {
        return Err(Error::new(
            Kind::Usage,
            "--files-from requires exactly one source: the directory that contains the listed paths",
        ));
    };
    let mut known: HashMap<Vec<u8>, Id> = HashMap::new();
    let mut folders = Vec::new();
    walk.recursive = true;
    let parts_of = |path: &'_ [u8]| -> Vec<Vec<u8>> {
        let parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
        parts.map(<[u8]>::to_vec).collect()
    };
    let options = shared.options;
    let all: HashSet<Vec<u8>> = selected.iter().map(|path| parts_of(path).join(&b'/')).collect();
    let is_all = |below: &[u8]| all.contains(below) && (below.is_empty() || options.filter.allows(below, true));
    for path in selected {
        let parts = parts_of(path);
        if parts.is_empty() && options.recursive {
            if shared.lock().source.totals().entries == 0 {
                send_top(shared, walk, base)?;
            }
            walk_folder(shared, &mut *walk, base, b"", ROOT, &mut folders)?;
            continue;
        }
        // What is below another selected directory is listed with that directory.
        let above = |count: usize| parts[..count].join(&b'/');
        if options.recursive
            && let Some(first) = (0..parts.len()).find(|count| is_all(&above(*count)))
        {
            let full = base.join(std::ffi::OsStr::from_bytes(&parts.join(&b'/')));
            if let Err(error) = shared.origin.stat(&full, false) {
                shared.fail(Error::file("read", &full, &error.into()));
            }
            if let Some(excluded) = (first + 1..parts.len()).find(|count| !options.filter.allows(&above(*count), true))
            {
                let excluded = base.join(std::ffi::OsStr::from_bytes(&above(excluded)));
                let text = format!("cannot copy {}: a pattern excludes {}", escape(&full), escape(&excluded));
                shared.fail(Error::new(Kind::File, text));
            }
            continue;
        }
        let mut dir = ROOT;
        for count in 1..=parts.len() {
            let below = parts[..count].join(&b'/');
            if let Some(id) = known.get(&below) {
                dir = *id;
                continue;
            }
            let parent = base.join(std::ffi::OsStr::from_bytes(&parts[..count - 1].join(&b'/')));
            let name = parts[count - 1].clone();
            let place =
                Place { directory: parent.into(), below: parts[..count - 1].join(&b'/').into(), follows: false };
            let next = shared.lock().source.next_id();
            // As in rsync, the directories above a listed path are copied in any case.
            let filtered = if count == parts.len() { Some(below.as_slice()) } else { None };
            match walk.entry(&place.path(&name), name, (next, filtered), false) {
                Ok(None) => break,
                Ok(Some(entry)) => {
                    let is_directory = entry.kind == EntryKind::Directory;
                    let full = place.path(&entry.name);
                    let id = shared.list(dir, Listing { place, entries: vec![entry], whole: false })?;
                    known.insert(below.clone(), id);
                    if !is_directory && count < parts.len() {
                        shared.fail(Error::new(Kind::File, format!("cannot read {}: not a directory", escape(&full))));
                        break;
                    }
                    if is_directory && count == parts.len() && shared.options.recursive {
                        folders.push((full, below, id));
                    }
                    dir = id;
                }
                Err(error) => {
                    shared.fail(error);
                    break;
                }
            }
        }
    }
    while let Some((path, below, id)) = folders.pop() {
        walk_folder(shared, walk, &path, &below, id, &mut folders)?;
    }
    Ok(())
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

    /// Assigns numbers to entries, and sends their list.
    fn list(&self, dir: Id, listing: Listing) -> Result<Id> {
        let mut state = self.wait(|state| state.source.waiting() < AHEAD);
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        let Listing { place, entries, whole } = listing;
        // The files are recorded before the list is sent, because answers may arrive immediately.
        let first = state.source.list(&entries);
        for (id, entry) in (first..).zip(&entries) {
            if let EntryKind::File { size, .. } = entry.kind {
                self.progress.listed(size);
                state.files.insert(id, (place.clone(), entry.clone()));
            }
        }
        state.is_listing = true;
        drop(state);
        let sent = self.sender.frame(&Frame::List { dir, entries, whole });
        self.lock().is_listing = false;
        self.changed.notify_all();
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
                    let ids: Vec<Id> = match &job {
                        Job::Pack(files) => files.iter().map(|(id, _)| *id).collect(),
                        Job::File { id, .. } => vec![*id],
                    };
                    let files: Vec<_> = ids.into_iter().filter_map(|id| state.files.remove(&id)).collect();
                    break (job, files);
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            state.busy += 1;
            drop(state);
            let done = read::run(self, &job, &files);
            self.lock().busy -= 1;
            self.break_if(done);
            self.changed.notify_all();
        }
    }

    /// Receives the sink's frames, until its report or the end of the connection.
    fn take_answers(&self, receiver: &mut Receiver) {
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
                                state.kept += size + 1;
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
                    state.failures.push(Error::from(failure));
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
            drop(state);
            self.changed.notify_all();
            if is_over {
                return;
            }
        }
    }
}
